"""SIGKILL of the worker at every boundary of a model call and of every class of tool.

Each effect happens once or is reported unknown, no completed model call is repeated, and the bill equation is exact.
"""

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowHandle

from schemas.contract import TASK_WORKFLOW
from schemas.effects import EffectKind, EffectState
from schemas.outcome import OutcomeKind
from schemas.state import TaskInput, TaskResult
from stores.archive import RunArchive
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from tests.support.events import assert_each_action_has_one_observation
from tests.support.judging import assert_bill_equation
from tests.support.killing_worker import POINTS
from tests.support.server import DevServer, client_of, running_server
from tests.support.tasks import (
    WorkerProcess,
    plan,
    rehearsed_bill,
    rehearsed_choice,
    reply,
    task_spec,
    verdict,
)

TOOLS = {
    "run": {"tool": "run", "arguments": {"command": "echo x >> effects.txt; echo done > out.txt"}},
    "write_file": {"tool": "write_file", "arguments": {"path": "out.txt", "content": "done\n"}},
    "edit_file": {"tool": "edit_file", "arguments": {"path": "readme.txt", "old": "hello", "new": "hello hello"}},
    "read_file": {"tool": "read_file", "arguments": {"path": "readme.txt"}},
}
FINISH = {"tool": "write_file", "arguments": {"path": "out.txt", "content": "done\n"}}
FAST = {("after_effect", "propose_action"), ("after_intent", "run")}  # one kill of each kind in every test run


def cases() -> Iterator[object]:
    """Yield every point for two model nodes and for one tool of each class."""
    for name in ("plan", "propose_action", *TOOLS):
        for point in POINTS:
            marks = () if (point, name) in FAST else (pytest.mark.slow,)
            yield pytest.param(point, name, marks=marks, id=f"{name}-{point}")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with running_server(tmp_path_factory.mktemp("home")) as server:
        asyncio.run(_ready(server))
        yield server


async def _ready(server: DevServer) -> None:
    await client_of(server.settings)


def script(tool: str) -> list[dict[str, object]]:
    """Return a script that uses ``tool``, and again where its effect is unknown; then writes the wanted file."""
    first = {"thought": "rehearsed", "actions": [TOOLS[tool]], "more": True}
    last = {"thought": "rehearsed", "actions": [FINISH], "more": False}
    return [
        reply("plan", plan("Write out.txt")),
        reply("is_step_done", verdict(False)),
        reply("validate_plan_step", verdict(False)),
        reply("summarize_actions", "rehearsed"),
        reply("propose_action", last, when=[f"^{tool} .*: (succeeded|unknown)\\.|hello hello"]),
        reply("propose_action", first),
    ]


@pytest.mark.parametrize(("point", "name"), list(cases()))
def test_sigkill(home: DevServer, tmp_path: Path, point: str, name: str) -> None:
    settings = home.settings
    flag = tmp_path / "killed"
    kill = json.dumps({"point": point, "name": name, "nth": 1, "flag": str(flag)})
    tool = name if name in TOOLS else "run"
    spec = task_spec(settings, rehearsed_choice(ArtifactStore(settings.artifacts_dir), script(tool)))
    workflow_id = f"task-{uuid.uuid4().hex[:10]}"
    doomed = WorkerProcess(settings, "--without-litellm", module="tests.support.killing_worker", KILL=kill)

    async def go() -> TaskResult:
        client: Client = await client_of(settings)
        handle: WorkflowHandle[object, TaskResult] = await client.start_workflow(
            TASK_WORKFLOW,
            TaskInput(spec=spec),
            id=workflow_id,
            task_queue=settings.queue_prefix,
            task_timeout=timedelta(seconds=2),
            result_type=TaskResult,
        )
        assert await asyncio.to_thread(doomed.wait) == -9
        assert flag.exists()
        successor = await asyncio.to_thread(WorkerProcess, settings, "--without-litellm")
        try:
            async with asyncio.timeout(60):
                return await handle.result()
        finally:
            successor.kill()

    try:
        result = asyncio.run(go())
    finally:
        doomed.kill()
    assert result.outcome.kind is OutcomeKind.FINISHED
    _judge(home, workflow_id, result, tool)


def _judge(home: DevServer, workflow_id: str, result: TaskResult, tool: str) -> None:
    ledger = Ledger(home.settings.database_url)
    run = ledger.run(workflow_id)
    assert run is not None
    rows = ledger.rows(run.first_run_id)
    assert all(row.state is not EffectState.INTENT for row in rows)
    assert_bill_equation(rows, rehearsed_bill(home.settings), result.summary.spend.microusd)
    archived = RunArchive(home.settings.archive_dir, ArtifactStore(home.settings.artifacts_dir))
    record = archived.read(workflow_id, run.first_run_id)
    assert (record.missing, record.complete) == ((), True)
    assert_each_action_has_one_observation(record.events)
    digests = Counter(row.effect_id for row in rows)
    assert max(digests.values()) == 1
    effects = Path(result.workspace_root) / "effects.txt"
    happened = len(effects.read_text().splitlines()) if effects.exists() else 0
    states = Counter(row.state for row in rows if row.kind is EffectKind.ACTION and row.name == "run")
    assert states[EffectState.DONE] <= happened <= states[EffectState.DONE] + states[EffectState.UNKNOWN]
    if tool == "edit_file":
        assert (Path(result.workspace_root) / "readme.txt").read_text() == "hello hello\n"
