"""Whether Temporal's own environment configuration names a server, in place of the embedded one."""

import os
from collections.abc import Mapping

OWN_CONFIGURATION = ("TEMPORAL_ADDRESS", "TEMPORAL_PROFILE", "TEMPORAL_CONFIG_FILE")
"""Variables of Temporal's own environment configuration that name a server."""


def names_own_server(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether Temporal's environment configuration names a server, so that the embedded one is not used."""
    return any(environ.get(variable) for variable in OWN_CONFIGURATION)
