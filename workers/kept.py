"""A program that is kept running: started again when it ends or hangs, stopped gently with its keeper."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_LOG_BYTES = 5_000_000
OLD_LOGS = 3
FIRST_DELAY_SECONDS = 0.2
LONGEST_DELAY_SECONDS = 30.0

log = logging.getLogger("surefoot.supervisor")

Spawn = Callable[[], Awaitable[asyncio.subprocess.Process]]
Attend = Callable[[asyncio.subprocess.Process, Callable[[], None]], Awaitable[None]]


class GaveUp(Exception):
    """The program ended again and again without ever becoming ready."""


@dataclass(frozen=True)
class Kept:
    """What is kept, and how."""

    name: str
    """For logs."""
    spawn: Spawn
    """Starts the program."""
    attend: Attend
    """Calls back once the program is ready, watches it, and returns when it must be replaced."""
    over: Callable[[], None]
    """Called after the program has ended."""
    failed: Callable[[int], None]
    """Called with the number of starts in a row that never became ready."""
    grace_seconds: float
    """Time between the request to end and SIGKILL."""

    async def run(self) -> None:
        """Keep the program running until cancelled, then end it. Whatever ``failed`` raises ends it too."""
        failures, delay = 0, FIRST_DELAY_SECONDS
        while True:
            ready = asyncio.Event()
            process = await self.spawn()
            log.info("%s started as process %d", self.name, process.pid)
            try:
                await _first_of(process.wait(), self.attend(process, ready.set))
            finally:
                await end(process, self.grace_seconds)
                self.over()
            log.warning("%s ended with code %s", self.name, process.returncode)
            if ready.is_set():
                failures, delay = 0, FIRST_DELAY_SECONDS
            else:
                failures, delay = failures + 1, min(delay * 2, LONGEST_DELAY_SECONDS)
            self.failed(failures)
            await asyncio.sleep(delay)


async def end(process: asyncio.subprocess.Process, grace_seconds: float) -> None:
    """Ask ``process`` to end, and kill it where it does not within ``grace_seconds``."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), grace_seconds)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _first_of(*waits: Awaitable[object]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def cancelled(task: asyncio.Task[None]) -> None:
    """Cancel ``task`` and wait for its end."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def rotate(path: Path) -> None:
    """Make room for a new log: one over the size limit becomes ``.1``, the older ones move on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.stat().st_size <= MAX_LOG_BYTES:
        return
    for number in range(OLD_LOGS, 0, -1):
        older = path.with_name(f"{path.name}.{number - 1}") if number > 1 else path
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number}"))


async def drain(stream: asyncio.StreamReader, path: Path) -> None:
    """Keep the pipe of a program empty; what it says goes to its log."""
    while data := await stream.read(65_536):
        with path.open("ab") as output:
            output.write(data)


@contextlib.contextmanager
def log_file(path: Path) -> Iterator[int]:
    """Open a log for a program that starts; yield its descriptor."""
    rotate(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
