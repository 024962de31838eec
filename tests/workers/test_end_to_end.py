"""A rehearsed task on a real server with a worker in its own process, real workspaces and a real ledger."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from schemas.contract import TASK_WORKFLOW
from schemas.outcome import OutcomeKind
from schemas.state import TaskInput, TaskResult
from schemas.task import TaskSpec
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from stores.settings import Settings
from tests.support.server import DevServer, client_of, running_server
from tests.support.tasks import (
    WorkerProcess,
    commands,
    plan,
    rehearsed_bill,
    rehearsed_choice,
    reply,
    task_spec,
    verdict,
    worker,
)

SCRIPT = [
    reply("plan", plan("Write out.txt")),
    reply("is_step_done", verdict(False)),
    reply("propose_action", commands("echo done > out.txt")),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with running_server(tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture(scope="module")
def serving(home: DevServer) -> Iterator[WorkerProcess]:
    asyncio.run(_connected(home.settings))
    with worker(home.settings) as running:
        yield running


async def _connected(settings: Settings) -> None:
    await client_of(settings)


def run_task(settings: Settings, spec: TaskSpec, workflow_id: str) -> TaskResult:
    """Run a task to its end."""

    async def go() -> TaskResult:
        client = await client_of(settings)
        result: TaskResult = await client.execute_workflow(
            TASK_WORKFLOW,
            TaskInput(spec=spec),
            id=workflow_id,
            task_queue=settings.queue_prefix,
            task_timeout=timedelta(seconds=2),
            result_type=TaskResult,
        )
        return result

    return asyncio.run(go())


def test_a_rehearsed_task_runs_from_plan_to_verified_result(home: DevServer, serving: WorkerProcess) -> None:
    settings = home.settings
    artifacts = ArtifactStore(settings.artifacts_dir)
    spec = task_spec(settings, rehearsed_choice(artifacts, SCRIPT))
    spec = spec.model_copy(update={"evaluator": (spec.requirements[0].check,)})
    result = run_task(settings, spec, "task-first")
    assert result.outcome.kind is OutcomeKind.FINISHED
    assert result.outcome.verified is True
    assert (Path(result.workspace_root) / "out.txt").read_text() == "done\n"
    run = Ledger(settings.database_url).run("task-first")
    assert run is not None
    rows = Ledger(settings.database_url).rows(run.first_run_id)
    assert [(row.name, row.state.value) for row in rows] == [
        ("plan", "done"),
        ("is_step_done", "done"),
        ("propose_action", "done"),
        ("run", "done"),
    ]
    bill = [line for line in rehearsed_bill(settings) if line["effect_id"].startswith("task-first:")]
    assert sum(line["microusd"] for line in bill) == result.summary.spend.microusd > 0


def test_the_same_workflow_id_used_again_is_another_task_with_another_workspace(
    home: DevServer, serving: WorkerProcess
) -> None:
    settings = home.settings
    spec = task_spec(settings, rehearsed_choice(ArtifactStore(settings.artifacts_dir), SCRIPT))
    first = run_task(settings, spec, "task-twice")
    second = run_task(settings, spec, "task-twice")
    assert second.outcome.kind is OutcomeKind.FINISHED
    assert second.workspace_root != first.workspace_root
    assert second.summary.spend == first.summary.spend


def test_a_secret_that_the_worker_does_not_know_ends_the_task_before_anything_is_paid(
    home: DevServer, serving: WorkerProcess
) -> None:
    settings = home.settings
    choice = rehearsed_choice(ArtifactStore(settings.artifacts_dir), SCRIPT)
    with pytest.raises(WorkflowFailureError) as caught:
        run_task(settings, task_spec(settings, choice, secrets=("NONE_SUCH",)), "task-secret")
    cause = caught.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == "SecretUnresolved"
    assert "add [secrets.NONE_SUCH] with env, file or command to config.toml" in cause.message
    assert [line for line in rehearsed_bill(settings) if line["effect_id"].startswith("task-secret:")] == []


def test_a_script_that_has_no_answer_ends_not_finished(home: DevServer, serving: WorkerProcess) -> None:
    settings = home.settings
    choice = rehearsed_choice(ArtifactStore(settings.artifacts_dir), [reply("plan", plan("Write out.txt"))])
    spec = task_spec(settings, choice)
    spec = spec.model_copy(update={"bounds": spec.bounds.model_copy(update={"max_plan_versions": 1})})
    result = run_task(settings, spec, "task-silent")
    assert result.outcome.kind is OutcomeKind.STOPPED_INCOMPLETE
    assert result.outcome.verified is None
