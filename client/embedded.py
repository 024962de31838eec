"""The embedded server from the outside: started once however many ask for it, and stopped.

Imported by every command: what takes long to import stays out of it.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from client.problems import PrerequisiteError
from client.streams import say
from stores.files import exclusive_lock, make_private
from stores.own_server import names_own_server
from stores.revisions import is_ours
from stores.running import (
    SERVER_FILE,
    START_LOCK,
    SUPERVISOR_FILE,
    WORKER_FILE,
    Process,
    ServerRecord,
    SupervisorRecord,
    WorkerRecord,
    WorkerRefusal,
    is_alive,
    read_record,
)
from stores.settings import PREFIX, SECTIONS, Settings
from stores.tracing import check_tracing

Found = TypeVar("Found")

STARTING_SECONDS = 90.0
STOPPING_SECONDS = 60.0
POLL_SECONDS = 0.05
FAILED_WORKER_STARTS = 3
LOG_LINES = 12
SUPERVISOR_LOG_BYTES = 5_000_000


class WorkerNotStarted(PrerequisiteError):
    """The worker says that it cannot serve before somebody changes something."""


def start_embedded(settings: Settings, worker: bool) -> None:
    """Start what is missing of the embedded server, unless Temporal's own configuration names another one.

    Nothing is started where no worker could use the ledger, or trace as it is told to: DatabaseRefused,
    LedgerUnavailable, TelemetryUnavailable. Raises PrerequisiteError as ``ensure_running``.
    """
    if not names_own_server():
        check(settings)
        ensure_running(settings, worker)


def wake_embedded(settings: Settings) -> None:
    """Bring the embedded server of a home that has been used back, and say so.

    A home whose server's file is lost has been used too: its archive can be read.

    Raises PrerequisiteError where nothing was ever started, or it does not come up; otherwise as ``start_embedded``.
    """
    if server_answers(settings):
        return
    check(settings)
    say("the embedded server is not running; starting it, without a worker (`surefoot up` starts one)")
    ensure_running(settings, worker=False)  # looking at tasks does not set them going again


def server_answers(settings: Settings) -> bool:
    """Whether there is a server to ask; one that its supervisor is starting again is waited for.

    Raises PrerequisiteError where nothing was ever started, or it does not come back.
    """
    if names_own_server() or server_of(settings):
        return True
    if supervisor_of(settings):
        ensure_running(settings, worker=False)
        return True
    if not (settings.temporal_db.exists() or settings.archive_dir.exists()):
        raise PrerequisiteError(f"no server has run for {settings.home} yet; start one with `surefoot up`")
    return False


def check(settings: Settings) -> None:
    """Refuse what no worker could start with. Raises DatabaseRefused, LedgerUnavailable, TelemetryUnavailable."""
    check_tracing(settings)
    if not is_ours(settings.database_url):
        from stores.database import check_database  # here: SQLAlchemy takes half a second

        check_database(settings.database_url)


def ensure_running(settings: Settings, worker: bool) -> ServerRecord:
    """Start what is missing of supervisor, server and (if asked for) worker, once even if several ask at the same time.

    Returns when the server is serving and the worker is polling. Raises PrerequisiteError, with what the worker said
    or the last lines of the log, where that does not come about; what was started for a worker that says that it cannot
    serve is stopped again.
    """
    make_private(settings.home)
    with exclusive_lock(settings.run_dir / START_LOCK):
        started = None
        if supervisor_of(settings) is None:
            say("starting the embedded server (`surefoot down` stops it) …")
            started = _start_supervisor(settings, worker)
        server = _wait_for(lambda: server_of(settings), settings, started, "server")
        if worker:
            try:
                _wait_for_worker(settings, started)
            except WorkerNotStarted:
                if started is not None:
                    _stop(settings)
                raise
        return server


def _wait_for_worker(settings: Settings, started: subprocess.Popen[bytes] | None) -> None:
    before = None
    supervisor = supervisor_of(settings)
    if started is None and supervisor:
        before = supervisor.refusal
        _signal(supervisor.process, signal.SIGUSR1)
    _wait_for(lambda: worker_of(settings), settings, started, "worker", before)


def stop(settings: Settings) -> bool:
    """Stop the supervisor with all it keeps running, or what a killed one has left; False where nothing ran.

    Raises PrerequisiteError where something does not end.
    """
    if not settings.run_dir.is_dir():
        return False
    with exclusive_lock(settings.run_dir / START_LOCK):
        return _stop(settings)


def _stop(settings: Settings) -> bool:
    record = read_record(settings.run_dir / SUPERVISOR_FILE, SupervisorRecord)
    worker, server = worker_of(settings), server_of(settings)
    # in this order: a supervisor ends the others itself, and a stopping worker still reports to the server
    named = (
        record.process if record else None,
        record.worker if record else None,
        worker.process if worker else None,
        server.process if server else None,
    )
    left = [process for process in named if process and is_alive(process)]
    for process in left:  # all of them: a supervisor that was killed has left the others behind
        _signal(process, signal.SIGTERM)
        _await_end(process)
    for name in (SERVER_FILE, WORKER_FILE):
        (settings.run_dir / name).unlink(missing_ok=True)
    return bool(left)


def _await_end(process: Process) -> None:
    deadline = time.monotonic() + STOPPING_SECONDS
    while is_alive(process):
        if time.monotonic() > deadline:
            raise PrerequisiteError(
                f"still running after {STOPPING_SECONDS:g} s: process {process.pid}; end it by hand"
            )
        time.sleep(POLL_SECONDS)


def supervisor_of(settings: Settings) -> SupervisorRecord | None:
    """Return the supervisor that runs for this home, or None."""
    record = read_record(settings.run_dir / SUPERVISOR_FILE, SupervisorRecord)
    return record if record and is_alive(record.process) else None


def server_of(settings: Settings) -> ServerRecord | None:
    """Return the embedded server that serves this home, or None."""
    record = read_record(settings.run_dir / SERVER_FILE, ServerRecord)
    return record if record and is_alive(record.process) else None


def worker_of(settings: Settings) -> WorkerRecord | None:
    """Return the supervised worker that polls for this home, or None."""
    record = read_record(settings.run_dir / WORKER_FILE, WorkerRecord)
    return record if record and is_alive(record.process) else None


def child_environment(settings: Settings) -> dict[str, str]:
    """Return the environment in which a process of ours that serves comes to the same settings, wherever it runs."""
    said = settings.model_dump(mode="json", exclude={"tiers", "secrets"})  # commands' own; found by name where needed
    for name, section in SECTIONS.items():  # what is not set is empty: no variable of ours speaks in its place
        said |= {f"{name}__{field}": (said[name] or {}).get(field) for field in section.model_fields}
        del said[name]
    return {**os.environ, **{f"{PREFIX}{name}".upper(): _variable(value) for name, value in said.items()}}


def _variable(value: str | bool | None) -> str:
    return str(value).lower() if isinstance(value, bool) else value or ""


def last_lines(path: Path, count: int = LOG_LINES) -> str:
    """Return the last lines of a log, each once, indented; empty where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 20_000))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    newest = list(dict.fromkeys(reversed(lines)))[:count]
    return "".join(f"\n  {line}" for line in reversed(newest))


def _start_supervisor(settings: Settings, worker: bool) -> subprocess.Popen[bytes]:
    for name in (SERVER_FILE, WORKER_FILE):  # of a supervisor that was killed: not what we are about to wait for
        (settings.run_dir / name).unlink(missing_ok=True)
    path = settings.logs_dir / "supervisor.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > SUPERVISOR_LOG_BYTES:
        path.replace(path.with_name("supervisor.log.1"))
    command = [sys.executable, "-m", "workers.supervisor", *(["--with-worker"] if worker else [])]
    with path.open("ab") as output:
        # its own session: the Ctrl-C that detaches a `run` must not end the server; its own folder: ours may go away
        started = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd=settings.home,
            env=child_environment(settings),
        )
    # it outlives us, or ends before us and must then not stay a zombie
    threading.Thread(target=started.wait, daemon=True).start()
    return started


def _wait_for(
    find: Callable[[], Found | None],
    settings: Settings,
    started: subprocess.Popen[bytes] | None,
    name: str,
    before: WorkerRefusal | None = None,
) -> Found:
    """Wait; a refusal from ``before`` the wait says nothing."""
    deadline = time.monotonic() + STARTING_SECONDS
    while time.monotonic() < deadline:
        found = find()
        if found:
            return found
        supervisor = supervisor_of(settings)
        if started is not None and started.poll() is not None:
            raise _not_up(settings, name, f"the supervisor ended with code {started.returncode}")
        if name == "worker" and supervisor:
            _refuse_refused(settings, supervisor, started is not None, before)
        time.sleep(POLL_SECONDS)
    raise _not_up(settings, name, f"nothing after {STARTING_SECONDS:g} s")


def _refuse_refused(settings: Settings, supervisor: SupervisorRecord, ours: bool, before: WorkerRefusal | None) -> None:
    """Raise where the worker said that it cannot serve, or ended again and again."""
    refusal = supervisor.refusal
    if refusal and refusal.final and refusal != before:
        hint = "" if ours else " What runs already keeps the settings that it was started with: `surefoot down` first."
        raise WorkerNotStarted(f"the worker does not start: {refusal.reason}.{hint}")
    if supervisor.worker_failures >= FAILED_WORKER_STARTS:
        said = f": {refusal.reason}" if refusal else ""
        raise _not_up(settings, "worker", f"it ended {supervisor.worker_failures} times before it polled{said}")


def _not_up(settings: Settings, name: str, why: str) -> PrerequisiteError:
    logs = [settings.logs_dir / f"{log}.log" for log in (name, "supervisor")]
    shown = "".join(f"\n{path}:{last_lines(path)}" for path in logs if last_lines(path))
    return PrerequisiteError(f"the embedded {name} does not come up: {why}; try `surefoot doctor`{shown}")


def _signal(process: Process, number: int) -> None:
    if is_alive(process):
        os.kill(process.pid, number)
