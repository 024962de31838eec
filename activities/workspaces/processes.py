"""Guard processes as others see them: identified by host, pid and start time, and ended for certain."""

import os
import signal
import socket
import time

from activities.workspaces.guard import KILL_SECONDS, kill_descendants, parent_and_start
from schemas.effects import ProcessGroup
from schemas.errors import WorkspaceUnavailable

POLL_SECONDS = 0.02


def process_group(pid: int) -> ProcessGroup | None:
    """Return what tells this process from a later one with the same pid, or None where it is gone."""
    found = parent_and_start(pid)
    return None if found is None else ProcessGroup(host=socket.gethostname(), pid=pid, started_ticks=found[1])


def is_alive(group: ProcessGroup) -> bool:
    """Whether the guard still runs on this host; a zombie does not."""
    return process_group(group.pid) == group


def end_guard(group: ProcessGroup, patience_seconds: float = 2 * KILL_SECONDS) -> bool:
    """End a guard with everything below it, and return whether there was anything to end.

    Blocks until it is gone; for ``patience_seconds`` it may see to that itself. Raises WorkspaceUnavailable where it
    cannot be ended. A guard of another host is not touched: its pid means nothing here.
    """
    try:
        handle = os.pidfd_open(group.pid)  # from here on the signal cannot hit a later process with this pid
    except ProcessLookupError:
        return False
    try:
        if not is_alive(group):
            return False
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        if _gone(group, patience_seconds):
            return True
        # it does not obey (stopped, or stuck): do its work, then end it
        kill_descendants(group.pid)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return True
    finally:
        os.close(handle)
    if not _gone(group, KILL_SECONDS):
        raise WorkspaceUnavailable(f"guard process {group.pid} on {group.host} cannot be ended")
    return True


def _gone(group: ProcessGroup, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_alive(group):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
