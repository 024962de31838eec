"""The supervisor: keeps the embedded Temporal server of one home running, and a worker if asked to.

``python -m workers.supervisor [--with-worker]`` runs until SIGTERM, which stops the worker, then the server.
SIGUSR1 asks a running supervisor for a worker. One supervisor serves a home; a second one says so and ends.
A server left behind by a killed supervisor is replaced on the same address.
"""

import argparse
import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from pydantic import ValidationError
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.service import ConnectConfig, RPCError, ServiceClient

from schemas.base import rebuild
from schemas.errors import StorageUnavailable
from schemas.outcome import EXIT_PREREQUISITE
from stores.running import (
    SERVER_FILE,
    SUPERVISOR_FILE,
    SUPERVISOR_LOCK,
    WORKER_FILE,
    Process,
    ServerRecord,
    SupervisorRecord,
    WorkerRecord,
    WorkerRefusal,
    is_alive,
    process_of,
    read_record,
    this_process,
    write_record,
)
from stores.search_attributes import SEARCH_ATTRIBUTES
from stores.settings import Settings, SettingsError, load_settings
from workers.kept import GaveUp, Kept, cancelled, drain, log, log_file
from workers.server import HOST, Ports, ServerMissing, choose_ports, find_server, server_command

NAMESPACE = "default"
SERVER_GRACE_SECONDS = 15.0
WORKER_GRACE_SECONDS = 20.0
STARTING_SECONDS = 60.0
CHECK_EVERY_SECONDS = 5.0
CHECK_TIMEOUT_SECONDS = 5.0
MISSED_CHECKS = 6  # a loaded machine may miss some; a hung server misses all
FAILED_SERVER_STARTS = 4


class WorkerRefused(Exception):
    """The worker cannot serve before somebody changes something."""


class Supervisor:
    """Keeps one home's server, and its worker, running."""

    def __init__(self, settings: Settings, program: Path) -> None:
        """Remember what to keep running; nothing starts before ``run``."""
        self._settings = settings
        self._program = program
        self._run_dir = settings.run_dir
        self._record = SupervisorRecord(process=this_process())
        self._served = False
        self._serving = asyncio.Event()
        self._worker_wanted = asyncio.Event()
        self._stop = asyncio.Event()

    async def run(self, with_worker: bool) -> None:
        """Keep everything running until SIGTERM or SIGINT. Raises GaveUp where the server never comes up."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGUSR1, self._worker_wanted.set)
        before = read_record(self._run_dir / SUPERVISOR_FILE, SupervisorRecord)
        self._note(worker=before.worker if before else None)
        await self._end_left_behind()
        if with_worker:
            self._worker_wanted.set()
        server, worker = asyncio.create_task(self._server().run()), asyncio.create_task(self._keep_worker())
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((server, worker, stop), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (worker, server):  # in this order: a stopping worker still reports to the server
                await cancelled(task)
            stop.cancel()
        for task in (server, worker):
            if not task.cancelled() and task.exception():
                raise task.exception() or RuntimeError

    async def _end_left_behind(self) -> None:
        """End what a killed supervisor left: its worker first, then its server."""
        worker = self._record.worker
        left = [worker] if worker and is_alive(worker) else []
        for process in (*left, *_servers_on(self._settings.temporal_db)):
            log.warning("ending process %d, left behind by an earlier supervisor", process.pid)
            await _end_stranger(process, WORKER_GRACE_SECONDS)
        for name in (SERVER_FILE, WORKER_FILE):
            (self._run_dir / name).unlink(missing_ok=True)
        self._note(worker=None)

    def _note(self, **changes: object) -> None:
        self._record = rebuild(self._record, **changes)
        write_record(self._run_dir / SUPERVISOR_FILE, self._record)

    def _server(self) -> Kept:
        ports: list[Ports] = []

        async def spawn() -> asyncio.subprocess.Process:
            ports[:] = [choose_ports(self._run_dir)]
            command = server_command(self._program, self._settings, ports[0])
            with log_file(self._settings.logs_dir / "server.log") as output:
                return await asyncio.create_subprocess_exec(
                    *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                )

        async def attend(process: asyncio.subprocess.Process, ready: Callable[[], None]) -> None:
            address = f"{HOST}:{ports[0].grpc}"
            client = await _until_serving(address)
            found = process_of(process.pid)
            if client is None or found is None:
                return
            record = ServerRecord(
                address=address, namespace=NAMESPACE, ui_address=f"http://{HOST}:{ports[0].ui}", process=found
            )
            write_record(self._run_dir / SERVER_FILE, record)
            log.info("server is serving on %s", address)
            self._served = True
            self._serving.set()
            ready()
            await _until_silent(client)

        def over() -> None:
            (self._run_dir / SERVER_FILE).unlink(missing_ok=True)

        def failed(times: int) -> None:
            if times >= FAILED_SERVER_STARTS and not self._served:
                raise GaveUp(f"the Temporal server ended {times} times before it served")

        return Kept("server", spawn, attend, over, failed, SERVER_GRACE_SECONDS)

    async def _keep_worker(self) -> None:
        while True:
            await self._worker_wanted.wait()
            self._worker_wanted.clear()
            await self._serving.wait()
            try:
                await self._worker().run()
            except WorkerRefused as refused:
                log.error("no worker is started before somebody asks for one: %s", refused)

    def _worker(self) -> Kept:
        path = self._settings.logs_dir / "worker.log"

        async def spawn() -> asyncio.subprocess.Process:
            with log_file(path) as output:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "workers.main"),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=output,
                    start_new_session=True,
                )
            self._note(worker=process_of(process.pid))
            return process

        async def attend(process: asyncio.subprocess.Process, ready: Callable[[], None]) -> None:
            if process.stdout is None:
                raise RuntimeError("the worker was started without a pipe")
            first = await process.stdout.readline()
            found, refusal = process_of(process.pid), _refusal(first)
            self._note(refusal=refusal)
            if first and found and refusal is None:
                write_record(self._run_dir / WORKER_FILE, WorkerRecord(process=found))
                ready()
            await drain(process.stdout, path)
            await process.wait()

        def over() -> None:
            (self._run_dir / WORKER_FILE).unlink(missing_ok=True)

        def failed(times: int) -> None:
            self._note(worker=None, worker_failures=times)
            if self._record.refusal and self._record.refusal.final:
                raise WorkerRefused(self._record.refusal.reason)

        return Kept("worker", spawn, attend, over, failed, WORKER_GRACE_SECONDS)


def _refusal(line: bytes) -> WorkerRefusal | None:
    """Return the refusal that a worker's first line is, or None where it is none."""
    try:
        return WorkerRefusal.model_validate_json(line)
    except ValidationError:
        return None


async def _until_serving(address: str) -> ServiceClient | None:
    """Return a connection once the namespace and the search attributes are there, or None after a minute."""
    deadline = time.monotonic() + STARTING_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(RPCError, RuntimeError):  # refused, or not ready yet
            client = await ServiceClient.connect(ConnectConfig(target_host=address))
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=NAMESPACE))
            known = await client.operator_service.list_search_attributes(
                ListSearchAttributesRequest(namespace=NAMESPACE)
            )
            if all(key.name in known.custom_attributes for key in SEARCH_ATTRIBUTES):
                return client
        await asyncio.sleep(0.05)
    return None


async def _until_silent(client: ServiceClient) -> None:
    missed = 0
    while missed < MISSED_CHECKS:
        await asyncio.sleep(CHECK_EVERY_SECONDS)
        missed = 0 if await _answers(client.check_health()) else missed + 1
    log.error("server has not answered %d health checks in a row", missed)


async def _answers(check: Awaitable[bool]) -> bool:
    try:
        return await asyncio.wait_for(check, CHECK_TIMEOUT_SECONDS)
    except (RPCError, TimeoutError):
        return False


def _servers_on(database: Path) -> list[Process]:
    """Return the servers that have this database open: two on one file would damage each other's work."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"start-dev" in words and os.fsencode(database) in words:
                    found.append(process_of(int(entry.name)))
    return [process for process in found if process]


async def _end_stranger(process: Process, grace_seconds: float) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
        for _ in range(int(grace_seconds / 0.02)):
            if not is_alive(process):
                return
            await asyncio.sleep(0.02)


@contextlib.contextmanager
def _sole(run_dir: Path) -> Iterator[bool]:
    """Hold the home's supervisor lock; False where another supervisor has it."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / SUPERVISOR_LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
        (run_dir / SUPERVISOR_FILE).unlink(missing_ok=True)


def main() -> int:
    """Run the supervisor of the configured home."""
    parser = argparse.ArgumentParser(description="Keeps the embedded Temporal server running.")
    parser.add_argument("--with-worker", action="store_true", help="keep a worker running as well")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    try:
        settings = load_settings()
        program = find_server(settings)
        with _sole(settings.run_dir) as sole:
            if not sole:
                log.info("a supervisor is running already for %s", settings.home)
                return 0
            asyncio.run(Supervisor(settings, program).run(arguments.with_worker))
    except (ServerMissing, SettingsError, StorageUnavailable, GaveUp) as error:
        log.error("%s", error)
        return EXIT_PREREQUISITE
    return 0


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    os._exit(code)  # the client library may abort while the interpreter shuts down
