"""The worker that the benches measure: the product's own, whose models are answered by ``bench.gateway``."""

import asyncio
import dataclasses
import os

from bench.gateway import Play, ScriptedGateway
from schemas.contract import all_refs
from stores.settings import load_settings
from workers.logs import log_json
from workers.main import Serves, make_parts, serve
from workers.telemetry import start_runtime


def set_heartbeats(seconds: int) -> None:
    """Give every activity that has a heartbeat time-out another one, in this process only.

    The product's is part of the contract and no option; workflow code reads it from the same objects, since the
    sandbox lets the schemas through.
    """
    for ref in all_refs():
        if ref.cls.heartbeat_seconds is not None:
            object.__setattr__(ref, "cls", dataclasses.replace(ref.cls, heartbeat_seconds=seconds))


def main() -> None:
    """Serve everything until SIGTERM."""
    play = Play.model_validate_json(os.environ["BENCH"])
    settings = load_settings()
    log_json(settings.log_level)
    start_runtime(settings)
    if play.heartbeat_seconds is not None:
        set_heartbeats(play.heartbeat_seconds)
    asyncio.run(serve(settings, make_parts(settings, ScriptedGateway(play)), Serves.ALL))


if __name__ == "__main__":
    main()
