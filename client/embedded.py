"""The embedded server from the outside: started once however many ask for it, and stopped."""

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
from stores.files import exclusive_lock, make_private
from stores.running import (
    SERVER_FILE,
    START_LOCK,
    SUPERVISOR_FILE,
    WORKER_FILE,
    Process,
    ServerRecord,
    SupervisorRecord,
    WorkerRecord,
    is_alive,
    read_record,
)
from stores.settings import Settings

Found = TypeVar("Found")

STARTING_SECONDS = 90.0
STOPPING_SECONDS = 60.0
POLL_SECONDS = 0.05
FAILED_WORKER_STARTS = 3
LOG_LINES = 12
SUPERVISOR_LOG_BYTES = 5_000_000


def ensure_running(settings: Settings, worker: bool) -> ServerRecord:
    """Start what is missing of supervisor, server and (if asked for) worker, once even if several ask at the same time.

    Returns when the server is serving and the worker is polling. Raises PrerequisiteError with the last lines of
    the log where that does not come about.
    """
    make_private(settings.home)
    with exclusive_lock(settings.run_dir / START_LOCK):
        started = None
        if supervisor_of(settings) is None:
            print("surefoot: starting the embedded server (`surefoot down` stops it) …", file=sys.stderr, flush=True)
            started = _start_supervisor(settings, worker)
        server = _wait_for(lambda: server_of(settings), settings, started, "server")
        if worker:
            supervisor = supervisor_of(settings)
            if started is None and supervisor:
                _signal(supervisor.process, signal.SIGUSR1)
            _wait_for(lambda: worker_of(settings), settings, started, "worker")
        return server


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
    """Return the environment in which a process of ours comes to the same settings, wherever it runs."""
    said = {
        "SUREFOOT_HOME": str(settings.home),
        "SUREFOOT_DATABASE_URL": settings.database_url,
        "SUREFOOT_QUEUE_PREFIX": settings.queue_prefix,
        "SUREFOOT_LOG_LEVEL": settings.log_level.value,
        "SUREFOOT_TEMPORAL_CLI": str(settings.temporal_cli or ""),
        "SUREFOOT_TELEMETRY__OTLP_ENDPOINT": settings.telemetry.otlp_endpoint or "",
        "SUREFOOT_TELEMETRY__PROMETHEUS": settings.telemetry.prometheus or "",
        "SUREFOOT_TELEMETRY__CONTENT": "true" if settings.telemetry.content else "false",
        "SUREFOOT_TELEMETRY__SERVICE_NAME": settings.telemetry.service_name,
    }
    return {**os.environ, **said}


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
    find: Callable[[], Found | None], settings: Settings, started: subprocess.Popen[bytes] | None, name: str
) -> Found:
    deadline = time.monotonic() + STARTING_SECONDS
    while time.monotonic() < deadline:
        found = find()
        if found:
            return found
        supervisor = supervisor_of(settings)
        if started is not None and started.poll() is not None:
            raise _not_up(settings, name, f"the supervisor ended with code {started.returncode}")
        if name == "worker" and supervisor and supervisor.worker_failures >= FAILED_WORKER_STARTS:
            raise _not_up(settings, name, f"it ended {supervisor.worker_failures} times before it polled")
        time.sleep(POLL_SECONDS)
    raise _not_up(settings, name, f"nothing after {STARTING_SECONDS:g} s")


def _not_up(settings: Settings, name: str, why: str) -> PrerequisiteError:
    logs = [settings.logs_dir / f"{log}.log" for log in (name, "supervisor")]
    shown = "".join(f"\n{path}:{last_lines(path)}" for path in logs if last_lines(path))
    return PrerequisiteError(f"the embedded {name} does not come up: {why}; try `surefoot doctor`{shown}")


def _signal(process: Process, number: int) -> None:
    if is_alive(process):
        os.kill(process.pid, number)
