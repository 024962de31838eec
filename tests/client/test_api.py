"""The typed client, on a real server with a worker process."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from client.api import Surefoot
from client.problems import BadInput, PrerequisiteError
from client.scenarios import ScenarioError
from client.tasks import UnknownTask
from schemas.outcome import OutcomeKind
from schemas.state import EventKind
from schemas.workspace import WorkspaceKind
from stores.artifacts import ArtifactStore
from stores.settings import Settings
from stores.temporal import ServerUnreachable
from tests.client.scenario_files import HEAD, rehearsed_scenario, write_scenario
from tests.support.server import DevServer, settings_of
from tests.support.tasks import commands, plan, rehearsed_choice, reply, task_spec, verdict, worker, workspace_spec

LOCAL = "workspace: {kind: local}\n"


@pytest.fixture(scope="module")
def served(server: DevServer) -> Iterator[Settings]:
    """A home with a server and a worker process."""
    with worker(server.settings):
        yield server.settings


def test_a_scenario_is_submitted_followed_and_its_end_is_typed(served: Settings, tmp_path: Path) -> None:
    async def test() -> None:
        surefoot = await Surefoot.open(served)
        task = await surefoot.submit(rehearsed_scenario(tmp_path, "touch out.txt", LOCAL))
        kinds = [event.kind async for event in task.events()]
        assert kinds[0] is EventKind.SYSTEM_PROMPT
        assert kinds[-1] is EventKind.STATE_CHANGE
        end = await task.result()
        assert end.outcome is not None
        assert end.outcome.kind is OutcomeKind.FINISHED
        assert end.result is not None
        assert (Path(end.result.workspace_root) / "out.txt").exists()
        assert [row.workflow_id for row in await surefoot.ended(1)] == [task.id]
        with pytest.raises(BadInput, match="has ended as FINISHED"):
            await task.pause()

    asyncio.run(test())


def test_a_spec_is_submitted_paused_steered_resumed_and_cancelled(served: Settings) -> None:
    script = [
        reply("plan", plan("Write out.txt")),
        reply("is_step_done", verdict(False)),
        reply("propose_action", commands("sleep 600")),
    ]
    choice = rehearsed_choice(ArtifactStore(served.artifacts_dir), script)
    spec = task_spec(served, choice, workspace=workspace_spec(served, WorkspaceKind.LOCAL))

    async def test() -> None:
        task = await (await Surefoot.open(served)).submit(spec)
        assert (await task.pause("lunch", by="ann")).accepted
        assert (await task.pause()).text == "refused: already paused"
        assert (await task.state()).paused_by == "ann: lunch"
        assert (await task.steer("be careful")).accepted
        assert (await task.resume()).accepted
        assert (await task.summary()).name == spec.name
        assert (await task.cancel("enough")).accepted
        outcome = (await task.result()).outcome
        assert outcome is not None
        assert outcome.kind is OutcomeKind.CANCELLED

    asyncio.run(test())


def test_what_cannot_be_is_raised_typed(served: Settings, tmp_path: Path) -> None:
    async def test() -> None:
        surefoot = await Surefoot.open(served)
        with pytest.raises(ScenarioError, match="colour"):
            await surefoot.submit(write_scenario(tmp_path, HEAD + "colour: red\n"))
        with pytest.raises(UnknownTask):
            await surefoot.task("task-none").look()
        with pytest.raises(BadInput, match="the text is empty"):
            await surefoot.task("task-none").steer(" ")
        with pytest.raises(ServerUnreachable):
            await Surefoot.open(settings_of(tmp_path))

    asyncio.run(test())


def test_a_task_that_nobody_serves_says_so(served: Settings) -> None:
    async def test() -> None:
        surefoot = await Surefoot.open(settings_of(served.home, queue_prefix="nobody"))
        choice = rehearsed_choice(ArtifactStore(served.artifacts_dir), [reply("plan", plan("x"))])
        task = await surefoot.submit(task_spec(served, choice))
        with pytest.raises(PrerequisiteError, match="no worker answers for it"):
            await task.summary()
        assert (await task.cancel()).accepted is None

    asyncio.run(test())
