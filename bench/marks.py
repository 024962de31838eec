"""What a worker notes of itself while it works: when it began a call, and the CPU time that it and the server had used.

The worker writes it, because only it knows the instant; one line of JSON for each call, read by the bench afterwards.
"""

import json
import os
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.machine import cpu_seconds


@dataclass(frozen=True)
class Mark:
    """The beginning of one call."""

    at: float
    """Seconds since the epoch."""
    name: str
    """Name of the activity."""
    effect: str
    """What the call is for: an effect id, or a workflow id; both begin with the workflow's id."""
    worker_cpu: float
    """CPU seconds that the worker has used so far, the processes that it has waited for included."""
    server_cpu: float
    """CPU seconds that the server has used so far."""


class Marks:
    """Appends marks to a file."""

    def __init__(self, path: Path, server_pid: int, names: Collection[str] = ()) -> None:
        """Note calls named in ``names``; all where it is empty."""
        self._file = path.open("a", buffering=1)
        self._server_pid = server_pid
        self._names = frozenset(names)

    def mark(self, name: str, effect: str) -> None:
        """Note that a call begins."""
        if self._names and name not in self._names:
            return
        used = os.times()
        worker = used.user + used.system + used.children_user + used.children_system
        mark = Mark(time.time(), name, effect, worker, cpu_seconds(self._server_pid))
        self._file.write(json.dumps(asdict(mark)) + "\n")


def read_marks(path: Path, workflow_id: str = "") -> list[Mark]:
    """Return the marks of one workflow, or of all; a last line that is not yet whole is left out."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    marks = [Mark(**json.loads(line)) for line in lines if line.endswith("\n")]
    return [mark for mark in marks if mark.effect.startswith(workflow_id)]
