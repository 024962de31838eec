"""Probes that tell the truth: ``/live`` and ``/ready`` of a worker process, over HTTP.

``/live`` says whether the event loop turns; where it does not, only a restart helps. ``/ready`` asks, each time: does
every worker poll as the server sees it, does the server answer, does the ledger answer (and take writes, every few
seconds), and is the process not about to stop. Both answer 200 or 503 with ``{"ok": …, "problems": […]}``. A thread of
its own answers, so that a loop that is stuck can still be told from one that turns.
"""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from schemas.errors import SurefootError
from stores.ledger import Ledger

TURN_EVERY_SECONDS = 0.5
STUCK_SECONDS = 15.0
"""The loop has not turned for so long: heartbeats of activities have timed out by then."""
CHECK_SECONDS = 3.0
"""What does not answer within this time does not answer; below the time-out that probes should have, 5 s."""
WRITE_CHECK_EVERY_SECONDS = 5.0
"""How often the ledger is asked whether it could be written: it waits its turn among the writers of a file."""

Problems = list[str]
Check = Callable[[], Coroutine[Any, Any, str | None]]


class HealthAddressUnusable(Exception):
    """Nothing can listen on ``health.address``."""

    def __init__(self, address: str, error: OSError) -> None:
        """Name the address, why, and what to do."""
        why = error.strerror or str(error)
        super().__init__(f"health.address {address} cannot be used: {why}. Set another one, SUREFOOT_HEALTH__ADDRESS")


class Health:
    """How a worker process is: whether its loop turns, and what keeps it from being ready."""

    def __init__(
        self, checks: Sequence[Check], check_seconds: float = CHECK_SECONDS, stuck_seconds: float = STUCK_SECONDS
    ) -> None:
        """Ask ``checks`` for readiness; each returns a problem or None. Made in the loop that is watched."""
        self._check_seconds = check_seconds
        self._stuck_seconds = stuck_seconds
        self._loop = asyncio.get_running_loop()
        self._checks = checks
        self._asked: dict[Check, asyncio.Task[str | None]] = {}
        self._turned = time.monotonic()
        self._draining = False

    def drain(self) -> None:
        """Be unready from here on: the process stops."""
        self._draining = True

    async def turn(self) -> None:
        """Note that the loop turns, for ever."""
        while True:
            self._turned = time.monotonic()
            await asyncio.sleep(TURN_EVERY_SECONDS)

    def live(self) -> Problems:
        """Return why the process should be restarted. Called from any thread."""
        idle = time.monotonic() - self._turned
        return [] if idle < self._stuck_seconds else [f"the event loop has not turned for {idle:.0f} s"]

    def ready(self) -> Problems:
        """Return what keeps the process from working. Called from any thread but the loop's; blocks."""
        if self._draining:
            return ["the worker is stopping"]
        asking = asyncio.run_coroutine_threadsafe(self._ask(), self._loop)
        try:
            return asking.result(self._check_seconds + 1)
        except FutureTimeout:
            asking.cancel()
            return ["the event loop does not answer"]

    async def _ask(self) -> Problems:
        answers = await asyncio.gather(*[self._answer(check) for check in self._checks])
        return [answer for answer in answers if answer]

    async def _answer(self, check: Check) -> str | None:
        """Ask once for all that wait: what hangs is not asked again before it has answered."""
        asked = self._asked.get(check)
        if asked is None or asked.done():
            asked = self._asked[check] = asyncio.create_task(check())
        done, _ = await asyncio.wait({asked}, timeout=self._check_seconds)
        return asked.result() if done else f"no answer within {self._check_seconds:g} s from {check.__doc__}"


def checks_of(client: Client, workers: Sequence[Worker], ledger: Ledger) -> list[Check]:
    """Return the checks of a process with these workers."""

    written = -WRITE_CHECK_EVERY_SECONDS

    def ask_ledger() -> None:
        nonlocal written
        due = time.monotonic() - written >= WRITE_CHECK_EVERY_SECONDS
        ledger.check(writing=due)
        if due:
            written = time.monotonic()

    async def ledger_answers() -> str | None:
        """the ledger"""
        try:
            await asyncio.to_thread(ask_ledger)
        except SurefootError as error:
            return str(error)
        return None

    return [ledger_answers, *[_polls(client, worker) for worker in workers]]


def _polls(client: Client, worker: Worker) -> Check:
    serves_workflows = bool(worker.config().get("workflows"))
    kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW if serves_workflows else TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=worker.task_queue), task_queue_type=kind
    )

    async def polls() -> str | None:
        """the Temporal server"""
        if not worker.is_running:
            return f"the worker of queue {worker.task_queue} does not run"
        try:
            seen = await client.workflow_service.describe_task_queue(request)
        except RPCError as error:
            return f"the Temporal server does not answer: {error.message}"
        if client.identity in {poller.identity for poller in seen.pollers}:
            return None
        return f"the Temporal server sees no poll of this worker on queue {worker.task_queue}"

    return polls


@contextlib.asynccontextmanager
async def served(health: Health, address: str) -> AsyncIterator[str]:
    """Answer probes on ``address`` for the length of a block, which gets the address with its real port.

    Raises HealthAddressUnusable.
    """
    server = _listen(health, address)
    thread = threading.Thread(target=server.serve_forever, name="health", daemon=True)
    turning = asyncio.create_task(health.turn())
    thread.start()
    try:
        yield f"{address.rpartition(':')[0]}:{server.server_address[1]}"
    finally:
        turning.cancel()
        await asyncio.to_thread(server.shutdown)
        server.server_close()


def _listen(health: Health, address: str) -> ThreadingHTTPServer:
    host, _, port = address.rpartition(":")

    class Listening(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

    class Answers(BaseHTTPRequestHandler):
        timeout = 10  # seconds for a request; who connects and says nothing is let go

        def do_GET(self) -> None:
            ask = {"/live": health.live, "/ready": health.ready}.get(self.path)
            if ask is None:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            problems = ask()
            body = json.dumps({"ok": not problems, "problems": problems}).encode() + b"\n"
            self.send_response(HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):  # the probe has gone
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: probes come every few seconds."""

    try:
        return Listening((host.strip("[]"), int(port)), Answers)
    except (OSError, OverflowError) as error:
        raise HealthAddressUnusable(address, error if isinstance(error, OSError) else OSError(str(error))) from error
