"""A command longer than the recovery: gone before anybody decides anew, whatever ended it, and never late."""

import asyncio
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from temporalio.client import Client

from schemas.effects import EffectState
from schemas.messages import Note
from schemas.outcome import OutcomeKind, Status
from schemas.task import Bounds
from schemas.workspace import WorkspaceKind
from stores.ledger import Ledger
from stores.settings import Settings
from tests.proof.bench import (
    Ended,
    Handle,
    ended,
    happened,
    one_step,
    rehearsed_spec,
    rows_of,
    start,
    states,
    with_client,
)
from tests.support.judging import assert_bill_equation
from tests.support.processes import processes_with
from tests.support.running import until
from tests.support.server import DevServer
from tests.support.tasks import WorkerProcess, commands, rehearsed_bill, reply, worker, workspace_spec

pytestmark = pytest.mark.slow

SECONDS = 25  # longer than a recovery


@dataclass
class Long:
    """A task whose first command is long and has a child that has left its session and its parent."""

    settings: Settings
    kind: WorkspaceKind
    handle: Handle
    token: str
    begun_at: float = 0.0

    @property
    def root(self) -> Path:
        """Its files, where the worker has opened them."""
        found = list(self.settings.workspaces_dir.glob(f"{self.handle.id}.*/files"))
        return found[0] if found else Path("/nowhere")

    async def runs(self) -> None:
        """Wait until the command runs with all its processes: two shells and two sleeps below the guard."""
        await happened(lambda: (self.root / "begun").exists(), what=f"{self.kind} command")
        await happened(lambda: len(processes_with(self.token)) >= 4, what=f"{self.kind} processes")
        self.begun_at = time.monotonic()

    async def is_gone(self) -> None:
        """Wait until none of its processes is left."""
        await happened(lambda: not processes_with(self.token), seconds=20, what=f"{self.kind}: end of the processes")


async def start_long(client: Client, settings: Settings, kind: WorkspaceKind, **bounds: int) -> Long:
    """Start a task with a long first command; whatever becomes of it, the second proposal writes the wanted file."""
    token = f"{SECONDS}.{uuid.uuid4().int % 10**9:09d}"  # as the sleeps' own argument it marks every process
    line = (
        f"touch begun; (setsid sh -c 'sleep {token}; echo late >> effects.txt' &); sleep {token}; echo x >> effects.txt"
    )
    script = one_step(
        "Write out.txt",
        reply("propose_action", commands("echo done > out.txt"), when=["^begun  "]),
        reply("propose_action", commands(line)),
    )
    spec = rehearsed_spec(settings, script, workspace=workspace_spec(settings, kind), bounds=Bounds(**bounds))
    return Long(settings, kind, await start(client, settings, spec), token)


async def begin(client: Client, settings: Settings, **bounds: int) -> list[Long]:
    """Start one task in each kind of workspace and wait until both commands run."""
    tasks = [await start_long(client, settings, kind, **bounds) for kind in WorkspaceKind]
    await asyncio.gather(*(task.runs() for task in tasks))
    return tasks


async def judge(task: Long, end: Ended, first: EffectState, outcome: OutcomeKind) -> None:
    """Check the task's end, that nothing of its command ever comes late, and its account."""
    assert end.outcome.kind is outcome, end.outcome
    rows = rows_of(task.settings, end.first_run_id)
    finished = [EffectState.DONE] if outcome is OutcomeKind.FINISHED else []
    assert states(rows, "run") == [first, *finished]
    assert_bill_equation(rows, rehearsed_bill(task.settings), end.spend_microusd)
    await asyncio.sleep(max(0.0, task.begun_at + SECONDS + 1 - time.monotonic()))
    assert not (task.root / "effects.txt").exists()


def test_sigkill_of_the_worker(home: DevServer) -> None:
    """The whole tree is gone while no other worker lives that could have ended it; then the effect is unknown."""
    settings = home.settings

    async def work(client: Client) -> None:
        doomed = await asyncio.to_thread(WorkerProcess, settings, "--without-litellm")
        try:
            tasks = await begin(client, settings)
            doomed.kill()
            await asyncio.gather(*(task.is_gone() for task in tasks))
        finally:
            doomed.kill()
        for task in tasks:
            assert task.handle.first_execution_run_id is not None
            open_effects = Ledger(settings.database_url).unsettled(task.handle.first_execution_run_id)
            assert [effect.name for effect in open_effects] == ["run"]  # nobody has reconciled it yet
        successor = await asyncio.to_thread(WorkerProcess, settings, "--without-litellm")
        try:
            for task in tasks:
                await judge(task, await ended(task.handle), EffectState.UNKNOWN, OutcomeKind.FINISHED)
        finally:
            successor.kill()

    with_client(settings, work)


def test_cancel(home: DevServer) -> None:
    async def work(client: Client) -> None:
        tasks = await begin(client, home.settings)
        for task in tasks:
            await task.handle.signal("cancel", Note(by="ann", text="enough"))
        await asyncio.gather(*(task.is_gone() for task in tasks))
        for task in tasks:
            await judge(task, await ended(task.handle), EffectState.INTERRUPTED, OutcomeKind.CANCELLED)

    with worker(home.settings):
        with_client(home.settings, work)


def test_pause(home: DevServer) -> None:
    async def work(client: Client) -> None:
        tasks = await begin(client, home.settings)
        for task in tasks:
            await task.handle.signal("pause", Note(by="ann"))
        await asyncio.gather(*(task.is_gone() for task in tasks))
        for task in tasks:
            await until(task.handle, lambda state: state.status is Status.PAUSED, 60)
            await task.handle.signal("resume", Note(by="ann"))
        for task in tasks:
            await judge(task, await ended(task.handle), EffectState.INTERRUPTED, OutcomeKind.FINISHED)

    with worker(home.settings):
        with_client(home.settings, work)


def test_the_time_limit_of_an_action(home: DevServer) -> None:
    async def work(client: Client) -> None:
        tasks = await begin(client, home.settings, action_timeout_seconds=5)
        await asyncio.gather(*(task.is_gone() for task in tasks))
        for task in tasks:
            await judge(task, await ended(task.handle), EffectState.INTERRUPTED, OutcomeKind.FINISHED)

    with worker(home.settings):
        with_client(home.settings, work)
