"""`make demo`: a task that survives the SIGKILL of its worker, and the proof from the records of others.

The scenario, the server, the worker, the sandbox, the kill are real; only the model is rehearsed, and says so. What
the closing table says comes from the model's own record of what it answered and from the ledger, not from here.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from client import lines
from client.embedded import child_environment, server_of, start_embedded, stop
from client.follow import Look, follow
from client.freezing import freeze
from client.problems import PrerequisiteError
from client.records import Figures, figures
from client.reporting import carry_out
from client.scenarios import load
from client.session import Session, with_session
from client.streams import accept_any_text
from client.submit import start
from schemas.base import rebuild
from schemas.effects import ProcessGroup
from schemas.outcome import EXIT_FAILED, EXIT_VERIFIED, Outcome, OutcomeKind
from schemas.state import Event
from stores.own_server import names_own_server
from stores.records import UnsettledEffect
from stores.running import Process, is_alive
from stores.settings import Settings

SCENARIO = Path(__file__).parent.parent / "scenarios" / "fix-failing-test.yaml"
KILL_IN = "soak.py"  # the command that takes seconds
UNDER_WAY_SECONDS = 1.5
READY_SECONDS = 60


@dataclass
class Drama:
    """What the demo has seen happen, for the closing table."""

    before: Figures | None = None
    """Figures of the model's record and the ledger at the kill."""
    killed_at: float = 0.0
    """When, by the monotonic clock."""
    command: ProcessGroup | None = None
    """Guard of the command that was running then."""
    gone_after_seconds: float | None = None
    """How long after the kill its processes were gone."""
    recovered_after_seconds: float | None = None
    """How long after the kill the task's next event came."""


def demo(settings: Settings) -> int:
    """Run the demo; return 0 where everything that it claims held, else 4."""
    started, home = time.monotonic(), settings
    settings = rebuild(settings, queue_prefix=f"demo-{secrets.token_hex(3)}")  # a worker of its own to kill
    _say("The model is REHEARSED: a script answers. Server, worker, sandbox, ledger and the kill are real.")
    spec_file = load(SCENARIO)
    was_running = server_of(home) is not None
    start_embedded(home, worker=False)
    _say(f"Temporal's dev server runs; data in {settings.home}")

    async def go(session: Session) -> int:
        spec = freeze(spec_file, settings, session.artifacts)
        with _worker(settings) as first:
            _say(f"worker A runs (pid {first.pid})")
            handle = await start(session.client, settings, spec)
            _say(f"task {handle.id} started: {spec.name}\n")
            drama = Drama()
            await _until_killed(session, handle.id, first, drama)
        with _worker(settings) as second:
            _say(f"worker B runs (pid {second.pid}); the task is where its history says it is\n")
            await _until_ended(session, handle.id, drama)
        return await _close(session, handle.id, drama, time.monotonic() - started)

    try:
        return with_session(settings, go)
    finally:
        if not was_running and not names_own_server():
            stop(home)


async def _until_killed(session: Session, task_id: str, worker: "subprocess.Popen[str]", drama: Drama) -> None:
    """Show the task until its long command is well under way, then kill its worker with SIGKILL."""
    seen = 0
    async for look in _shown(follow(session.tasks, task_id)):
        if look.view and look.view.ended:
            raise PrerequisiteError("the task ended before its worker could be killed")
        seen = max([seen, *(int(event.id[1:]) for event in look.events)])
        summary = look.view.summary if look.view else None
        if summary and KILL_IN in summary.now and " run " in summary.now:
            await asyncio.sleep(UNDER_WAY_SECONDS)
            running = await _running_command(session, task_id)
            if running is None:
                raise PrerequisiteError("the command ended before its worker could be killed")
            drama.command = running.process
            drama.before = await figures(session, task_id)
            drama.killed_at = time.monotonic()
            worker.kill()
            worker.wait()
            _say(f"\n>>> SIGKILL to worker A (pid {worker.pid}) while `{KILL_IN}` is running in the sandbox")
            drama.gone_after_seconds = await _gone(running.process)
            _say(f">>> its command and everything that it started were gone after {drama.gone_after_seconds:.2f} s")
            return


async def _until_ended(session: Session, task_id: str, drama: Drama) -> None:
    """Show the task from what is new after the kill to its end."""
    known = 0
    first = True
    async for look in follow(session.tasks, task_id):
        events = look.events
        if first and look.view and look.view.state:
            first, known = False, len(events)
            continue
        if events and drama.recovered_after_seconds is None and known:
            drama.recovered_after_seconds = time.monotonic() - drama.killed_at
            _say(f">>> recovered: the first new event came {drama.recovered_after_seconds:.1f} s after the kill")
        for event in events:
            _tell(event)


async def _shown(looks: AsyncIterator[Look]) -> AsyncIterator[Look]:
    async for look in looks:
        for event in look.events:
            _tell(event)
        yield look


async def _running_command(session: Session, task_id: str) -> UnsettledEffect | None:
    view = await session.tasks.look(task_id)
    open_effects = await asyncio.to_thread(session.tasks.unsettled, view.first_run_id)
    return next((effect for effect in open_effects if effect.process is not None), None)


async def _gone(process: ProcessGroup | None, patience_seconds: float = 10) -> float | None:
    """Wait until the command's guard has ended, which is after all that it guards; return how long that took."""
    if process is None:
        return None
    began = time.monotonic()
    while is_alive(Process(pid=process.pid, started_ticks=process.started_ticks)):
        if time.monotonic() - began > patience_seconds:
            raise PrerequisiteError(f"the killed worker's command still runs (pid {process.pid})")
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def _close(session: Session, task_id: str, drama: Drama, seconds: float) -> int:
    """Print the closing table from the records; return the exit code."""
    view = await session.tasks.look(task_id)
    after = await figures(session, task_id)
    _say("\n" + "\n".join(lines.ending_lines(view, session.settings.workspaces_dir)))
    before = drama.before
    if before is None:
        raise PrerequisiteError("the worker was not killed")
    _say(f"\n{'from the records':<46}{'at the kill':>14}{'at the end':>14}")
    rows = (
        ("requests that the model answered (its record)", before.answered, after.answered),
        ("  of them more than once", before.answered_twice, after.answered_twice),
        ("billed by the model, at a pretended price", lines.dollars(before.billed), lines.dollars(after.billed)),
        ("spent by the task (ledger)", lines.dollars(before.spent), lines.dollars(after.spent)),
        ("actions that happened once (ledger)", before.states["done"], after.states["done"]),
        ("actions whose outcome is unknown (ledger)", before.states["unknown"], after.states["unknown"]),
        ("effects open (ledger)", before.states["intent"], after.states["intent"]),
    )
    for name, then, now in rows:
        _say(f"{name:<46}{then:>14}{now:>14}")
    held = list(_claims(view.outcome, before, after))
    for good, claim in held:
        _say(f"{lines.mark(good)} {claim}")
    recovered = f"{drama.recovered_after_seconds:.1f} s" if drama.recovered_after_seconds else "unknown"
    _say(f"\nrecovery {recovered} (heartbeat time-out 5 s), whole demo {seconds:.0f} s")
    _say(f"look further: .venv/bin/surefoot show {task_id} --diff   ·   .venv/bin/surefoot --help")
    return EXIT_VERIFIED if all(good for good, _ in held) else EXIT_FAILED


def _claims(outcome: Outcome | None, before: Figures, after: Figures) -> Iterator[tuple[bool, str]]:
    """Yield what the demo claims, each with whether it held."""
    finished = outcome is not None and outcome.kind is OutcomeKind.FINISHED and outcome.verified is True
    yield finished, "finished, and the hidden evaluator agrees"
    yield after.answered_twice == 0, "no answered request was asked again"
    yield after.billed <= after.spent and after.unexplained == 0, "every micro-dollar of the bill is accounted for"
    yield after.spent >= before.spent > 0, "nothing that was spent before the kill was forgotten"
    yield before.states["intent"] == 1, "a command was open at the kill"
    yield after.states["intent"] == 0 and after.states["unknown"] == 1, "it is reported unknown, and nothing is open"


@contextlib.contextmanager
def _worker(settings: Settings) -> Iterator["subprocess.Popen[str]"]:
    """Run a worker process that polls; it is ended with the block, if it still lives."""
    log_path = settings.logs_dir / "demo-worker.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("a") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "workers.main", "--without-litellm"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=child_environment(settings),
        )
    try:
        if worker.stdout is None or not worker.stdout.readline():
            raise PrerequisiteError(f"the worker does not start; see {log_path}")
        yield worker
    finally:
        worker.terminate()
        worker.wait(READY_SECONDS)
        if worker.stdout:
            worker.stdout.close()


def _tell(event: Event) -> None:
    line = lines.event_line(event)
    _say(lines.wrapped(line, shutil.get_terminal_size().columns) if sys.stdout.isatty() else line)


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    """Run the demo on the configured home; a server that it had to start is stopped again."""
    accept_any_text()
    code = carry_out(None, demo)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
