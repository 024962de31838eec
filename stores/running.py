"""What runs under a home: the records in ``<home>/run`` that its processes leave for each other."""

import os
from pathlib import Path
from typing import TypeVar

from pydantic import Field, ValidationError

from schemas.base import Count, Frozen
from stores.files import write_atomically

Record = TypeVar("Record", bound=Frozen)

SERVER_FILE = "server.json"
WORKER_FILE = "worker.json"
SUPERVISOR_FILE = "supervisor.json"
SUPERVISOR_LOCK = "supervisor.lock"
START_LOCK = "start.lock"


class Process(Frozen):
    """A process on this machine. A pid alone is not enough: it is used again."""

    pid: Count
    """Process id."""
    started_ticks: Count
    """Start time in clock ticks since boot."""


class ServerRecord(Frozen):
    """The embedded server, while it is serving."""

    address: str = Field(max_length=100)
    """``host:port`` of the gRPC service."""
    namespace: str = "default"
    """Namespace of all tasks."""
    ui_address: str = Field(max_length=200)
    """Address of Temporal's own web UI."""
    process: Process
    """The server."""


class WorkerRecord(Frozen):
    """The supervised worker, while it is polling."""

    process: Process
    """The worker."""


class WorkerRefusal(Frozen):
    """Why a worker does not serve; it prints this on standard output, and ends."""

    process: Process
    """The worker."""
    reason: str = Field(max_length=2000)
    """What is wrong, and what to do."""
    final: bool
    """Whether waiting does not help, but only somebody who changes something."""


class SupervisorRecord(Frozen):
    """The supervisor, from before it starts anything."""

    process: Process
    """The supervisor."""
    worker: Process | None = None
    """The worker that it has started last, where it keeps one; polling once ``worker.json`` says so."""
    worker_failures: Count = 0
    """Starts of a worker in a row that ended before it polled."""
    refusal: WorkerRefusal | None = None
    """What the last one of them said; after a final one no other is started before somebody asks for it."""


def process_of(pid: int) -> Process | None:
    """Return the process that has ``pid`` now, or None where there is none (a zombie counts as none)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else Process(pid=pid, started_ticks=int(fields[19]))


def this_process() -> Process:
    """Return the calling process."""
    found = process_of(os.getpid())
    if found is None:
        raise RuntimeError("/proc does not show this process")
    return found


def is_alive(process: Process) -> bool:
    """Whether exactly this process still runs."""
    return process_of(process.pid) == process


def write_record(path: Path, record: Frozen) -> None:
    """Write ``record`` for other processes; they see all of it or nothing."""
    write_atomically(path, record.model_dump_json().encode())


def read_record(path: Path, record: type[Record]) -> Record | None:
    """Return the record in ``path``, or None where there is none or it cannot be read."""
    try:
        return record.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
