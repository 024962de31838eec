"""Running a command under a guard: streamed output, a bound on everything, nothing left behind."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import ValidationError

from activities.workspaces import guard
from activities.workspaces.excerpts import decode
from activities.workspaces.processes import end_guard, process_group
from activities.workspaces.sandbox import Command
from schemas.base import Frozen
from schemas.effects import ProcessGroup
from schemas.errors import WorkspaceUnavailable
from stores.secrets import Secrets

MAX_OUTPUT_BYTES = 16 * 1024 * 1024
TAIL_BYTES = 64 * 1024
STOP_SECONDS = 2 * guard.KILL_SECONDS
DRAIN_SECONDS = 5.0
SIGNALLED = 128  # exit codes above it say which signal has ended the command


class Ending(StrEnum):
    """How a command ended."""

    EXITED = "exited"
    """By itself."""
    TIMED_OUT = "timed_out"
    """Killed at its time limit."""
    STOPPED = "stopped"
    """Killed because it was asked to stop."""


class GuardReport(Frozen):
    """What a guard says at its end."""

    ending: Ending
    """How the command ended."""
    exit_code: int | None
    """Its exit code, 128 and the signal's number for a signal; None where it was killed."""
    left: int
    """Processes that could not be killed."""


@dataclass(frozen=True)
class CommandResult:
    """A command that has ended, with everything it had started."""

    ending: Ending
    exit_code: int | None
    output: str
    """Standard output and error in the order written, masked; the middle is cut beyond ``MAX_OUTPUT_BYTES``."""
    output_bytes: int
    """What it wrote in all."""
    dropped_bytes: int
    """What is missing in ``output``."""
    left: int
    """Processes that could not be killed; 0 but for programs of another user."""


async def run_command(
    command: Command, stop: asyncio.Event, release: Callable[[ProcessGroup], Awaitable[None]], secrets: Secrets
) -> CommandResult:
    """Run a command to its end, its time limit, or until ``stop`` is set.

    ``release`` is awaited with the guard's identity before the command starts; where it raises, nothing has started
    and nothing will. The output is masked before anybody sees it. Raises WorkspaceUnavailable where the guard itself
    fails.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(Path(guard.__file__))),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C at the worker's terminal is the worker's to handle
        env={},
        cwd="/",
    )
    group = process_group(process.pid)
    try:
        if group is None:
            raise WorkspaceUnavailable(f"the guard process ended at once: {await _complaint(process)}")
        await release(group)
        return await _guarded(process, command, stop, secrets)
    finally:
        await _gone(process, group)


async def _guarded(
    process: asyncio.subprocess.Process, command: Command, stop: asyncio.Event, secrets: Secrets
) -> CommandResult:
    assert process.stdin
    assert process.stdout
    assert process.stderr
    output = _Output()
    reading = asyncio.create_task(output.read(process.stdout))
    reporting = asyncio.create_task(process.stderr.read())  # its end is the guard's end: no command holds it
    stopping = asyncio.create_task(stop.wait())
    try:
        process.stdin.write(_order(command))
        await asyncio.wait({reporting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        process.stdin.close()
        report = _report(await asyncio.wait_for(reporting, STOP_SECONDS if stop.is_set() else None))
        await asyncio.wait({reading}, timeout=DRAIN_SECONDS)
    except TimeoutError:
        raise WorkspaceUnavailable(f"guard process {process.pid} does not end") from None
    finally:
        for task in (reading, reporting, stopping):
            task.cancel()
        await asyncio.gather(reading, reporting, stopping, return_exceptions=True)
    killed = report.ending is not Ending.EXITED or (report.exit_code or 0) > SIGNALLED
    text = await asyncio.to_thread(output.text, secrets, killed)
    return CommandResult(report.ending, report.exit_code, text, output.total, output.dropped, report.left)


def _order(command: Command) -> bytes:
    order = {
        "argv": command.argv,
        "cwd": command.cwd,
        "env": dict(command.env),
        "timeout_seconds": command.timeout_seconds,
        "limits": dict(command.limits),
    }
    return json.dumps(order).encode() + b"\n"


def _report(said: bytes) -> GuardReport:
    try:
        return GuardReport.model_validate_json(said)
    except ValidationError:
        raise WorkspaceUnavailable(f"the guard process gave no report: {decode(said)[-500:]}") from None


async def _complaint(process: asyncio.subprocess.Process) -> str:
    assert process.stderr
    return decode(await process.stderr.read())[-500:]


async def _gone(process: asyncio.subprocess.Process, group: ProcessGroup | None) -> None:
    """Wait until the guard is gone: it ends by itself once its input is closed, and is ended where it does not."""
    assert process.stdin
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except TimeoutError:
        if group is not None:
            await asyncio.to_thread(end_guard, group)
        await process.wait()


class _Output:
    """The head and the tail of a stream; what is between is counted and dropped."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    async def read(self, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(65536):
            self.total += len(chunk)
            room = MAX_OUTPUT_BYTES - TAIL_BYTES - len(self._head)
            self._head += chunk[:room]
            self._tail += chunk[room:]
            if len(self._tail) > 4 * TAIL_BYTES:
                del self._tail[:-TAIL_BYTES]

    @property
    def dropped(self) -> int:
        return max(self.total - len(self._head) - TAIL_BYTES, 0)

    def text(self, secrets: Secrets, killed: bool) -> str:
        """Return what was kept, masked. Who is killed leaves half of what it was about to write: blocks of 4 kB."""
        tail = self._tail[-TAIL_BYTES:]
        if not self.dropped:
            text = decode(bytes(self._head + tail))
            return secrets.mask_head(text) if killed or not text.endswith("\n") else secrets.mask(text)
        head = secrets.mask_head(decode(bytes(self._head)))
        end = secrets.mask_tail(secrets.mask_head(decode(bytes(tail))))
        return f"{head}\n[… {self.dropped:,} bytes were not kept …]\n{end}"
