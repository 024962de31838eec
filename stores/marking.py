"""What refers to what: pure, and generous. Whatever could be a reference counts as one."""

import re
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta

HASH_CHARACTERS = 64
_HEX_RUN = re.compile(rb"[0-9a-f]{64,}")
_WORKSPACE = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]*\.[0-9a-f]{10}(?![0-9a-f])")


def hashes_in(data: bytes, names: Collection[str]) -> set[str]:
    """Return which of ``names`` (SHA-256 in hex) stand in ``data``, wherever that is and whatever stands beside."""
    found: set[str] = set()
    for match in _HEX_RUN.finditer(data):
        run = match.group().decode()
        windows = (run[at : at + HASH_CHARACTERS] for at in range(len(run) - HASH_CHARACTERS + 1))
        found.update(window for window in windows if window in names)
    return found


def workspaces_in(data: bytes, names: Collection[str]) -> set[str]:
    """Return which of ``names`` of workspaces stand in ``data``."""
    found = (match.decode() for match in _WORKSPACE.findall(data))
    return {name for name in found if name in names}


def reachable(roots: Iterable[str], read: Callable[[str], bytes], names: Collection[str]) -> set[str]:
    """Return ``roots`` and every artifact that these refer to, directly or through others.

    ``read`` gives an artifact's content; empty where it is not there.
    """
    marked = {name for name in roots if name in names}
    waiting = list(marked)
    while waiting:
        fresh = hashes_in(read(waiting.pop()), names) - marked
        marked |= fresh
        waiting += fresh
    return marked


def workspace_is_over(
    *,
    opened: datetime,
    ended: datetime | None,
    in_open_run: bool,
    in_history: bool,
    now: datetime,
    older_than: timedelta,
    young: timedelta,
) -> bool:
    """Return whether a workspace may go.

    Its run ended more than ``older_than`` ago. Where nobody recorded that, it was opened longer ago than this and
    than ``young``, and no history that Temporal has speaks of it.
    """
    if in_open_run:
        return False
    if ended is not None:
        return now - ended > older_than
    return not in_history and now - opened > max(older_than, young)
