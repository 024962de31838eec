"""No row is mistaken for another and no spend is forgotten: ids used again, resets, tasks and workers side by side."""

import asyncio
import hashlib

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client

from schemas.budget import Limits, Reservation
from schemas.effects import EffectState, Intent
from schemas.ids import CallKey
from schemas.outcome import OutcomeKind, StopReason
from schemas.state import TaskResult
from schemas.task import Bounds, TaskSpec
from stores.ledger import Ledger
from stores.records import EffectRow
from stores.settings import Settings
from tests.proof.bench import (
    Ended,
    Handle,
    attempts,
    ended,
    happened,
    lines_of,
    one_step,
    rehearsed_spec,
    rows_of,
    start,
    states,
    with_client,
)
from tests.support.judging import assert_bill_equation
from tests.support.server import DevServer, settings_of
from tests.support.tasks import WorkerProcess, commands, plan, rehearsed_bill, reply, verdict, worker


def appending(settings: Settings, command: str = "echo x >> out.txt", **changes: object) -> TaskSpec:
    """Return a task whose one command appends a line; its requirement holds once a line is there."""
    script = one_step("Append to out.txt", reply("propose_action", commands(command)))
    return rehearsed_spec(settings, script, **changes)


async def reset_before(client: Client, handle: Handle, activity: str) -> Handle:
    """Reset a task to just before the first time that it schedules ``activity``; return the new run."""
    point = 0
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            point = event.event_id
        scheduled = event.activity_task_scheduled_event_attributes
        if (
            event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
            and scheduled.activity_type.name == activity
        ):
            break
    request = ResetWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=handle.result_run_id or ""),
        workflow_task_finish_event_id=point,
        request_id=f"reset-{handle.id}",
        reason="proof",
    )
    reply = await client.workflow_service.reset_workflow_execution(request)
    return client.get_workflow_handle(
        handle.id, run_id=reply.run_id, first_execution_run_id=handle.first_execution_run_id, result_type=TaskResult
    )


def assert_accounts(settings: Settings, end: Ended) -> None:
    """Check that a chain's rows, its own word and the model's record agree, and that every row is its own."""
    rows = rows_of(settings, end.first_run_id)
    assert rows
    assert all(row.effect_id.startswith(f"{end.handle.id}:") for row in rows)
    assert all(row.state is not EffectState.INTENT for row in rows)
    assert sum(row.charged.microusd for row in rows) == end.spend_microusd
    assert_bill_equation(rows, rehearsed_bill(settings), end.spend_microusd)


def test_the_same_workflow_id_started_again(home: DevServer, serving: WorkerProcess) -> None:
    settings = home.settings
    spec = appending(settings)

    async def work(client: Client) -> None:
        first = await ended(await start(client, settings, spec, "task-again"))
        second = await ended(await start(client, settings, spec, "task-again"))
        assert first.outcome.kind is second.outcome.kind is OutcomeKind.FINISHED
        assert first.root != second.root
        assert lines_of(first.root / "out.txt") == lines_of(second.root / "out.txt") == ["x"]
        ids = [{row.effect_id for row in rows_of(settings, end.first_run_id)} for end in (first, second)]
        assert len(ids[0]) == len(ids[1]) == 4
        assert not ids[0] & ids[1]
        for end in (first, second):
            assert_accounts(settings, end)

    with_client(settings, work)


def test_a_reset_of_a_finished_task_forgets_no_spend(home: DevServer, serving: WorkerProcess) -> None:
    settings = home.settings

    async def work(client: Client) -> None:
        first = await ended(await start(client, settings, appending(settings)))
        before = rows_of(settings, first.first_run_id)
        second = await ended(await reset_before(client, first.handle, "propose_action"))
        assert second.outcome.kind is OutcomeKind.FINISHED
        rows = rows_of(settings, first.first_run_id)
        assert rows[: len(before)] == before  # nothing that was settled has changed
        assert [row.name for row in rows[len(before) :]] == ["propose_action", "run"]
        assert len({row.effect_id for row in rows}) == len(rows)
        assert second.spend_microusd > first.spend_microusd
        assert_accounts(settings, second)
        assert lines_of(second.root / "out.txt") == ["x", "x"]  # asked for again, done again: two effects

    with_client(settings, work)


def test_a_reset_run_gets_no_second_budget(home: DevServer, serving: WorkerProcess) -> None:
    """The limit leaves just enough room for the first run: the reset run remembers less, the ledger does not."""
    settings = home.settings

    async def work(client: Client) -> None:
        free = await ended(await start(client, settings, idle(settings, Limits(microusd=10**6))))
        rows = rows_of(settings, free.first_run_id)
        limit = least_limit(rows) + 500  # the prompts name the limit: a few tokens more or less
        first = await ended(await start(client, settings, idle(settings, Limits(microusd=limit))))
        assert first.outcome.reason is StopReason.MAX_PLAN_VERSIONS
        second = await ended(await reset_before(client, first.handle, "propose_action"))
        assert second.outcome.kind is OutcomeKind.STOPPED_INCOMPLETE
        assert second.outcome.reason is StopReason.BUDGET_USD
        assert len(rows_of(settings, first.first_run_id)) == len(rows) == 3  # nobody was asked anything more
        assert second.spend_microusd == first.spend_microusd <= limit
        assert_accounts(settings, second)

    with_client(settings, work)


def idle(settings: Settings, limits: Limits) -> TaskSpec:
    """Return a task that asks three times, one after the other, does nothing and stops."""
    nothing = {"thought": "nothing to do", "actions": [], "more": False}
    script = [
        reply("plan", plan("Wait")),
        reply("is_step_done", verdict(False)),
        reply("propose_action", nothing),
    ]
    bounds = Bounds(max_plan_versions=1, max_plan_step_iterations=1)
    return rehearsed_spec(settings, script, bounds=bounds, limits=limits)


def least_limit(rows: list[EffectRow]) -> int:
    """Return the least money limit under which these effects are all allowed, one after the other."""
    return max(sum(row.charged.microusd for row in rows[:n]) + rows[n].reserved.microusd for n in range(len(rows)))


def test_a_reset_of_a_running_task_forgets_no_spend(home: DevServer, serving: WorkerProcess) -> None:
    """The command of the run that was cut off is interrupted; the new run does it again under another id."""
    settings = home.settings

    async def work(client: Client) -> None:
        handle = await start(client, settings, appending(settings, "echo x >> out.txt; sleep 4; echo y >> out.txt"))
        folder = settings.workspaces_dir
        await happened(lambda: list(folder.glob(f"{handle.id}.*/files/out.txt")), what="the command")
        again = await ended(await reset_before(client, handle, "propose_action"))
        assert again.outcome.kind is OutcomeKind.FINISHED
        first_run = handle.first_execution_run_id or ""
        await happened(
            lambda: not Ledger(settings.database_url).unsettled(first_run), what="the end of the old command"
        )
        rows = rows_of(settings, first_run)
        assert states(rows, "run") == [EffectState.INTERRUPTED, EffectState.DONE]
        assert states(rows, "propose_action") == [EffectState.DONE, EffectState.DONE]
        assert_accounts(settings, again)
        assert lines_of(again.root / "out.txt") == ["x", "x", "y"]

    with_client(settings, work)


@pytest.mark.slow
def test_tasks_and_workers_side_by_side(home: DevServer, serving: WorkerProcess) -> None:
    """Eight tasks at once on two workers and one ledger: each has its own rows, files and bill."""
    settings = home.settings

    async def work(client: Client) -> None:
        line = "echo x >> effects.txt; sleep 0.2; [ $(wc -l < effects.txt) -lt 4 ] || echo done > out.txt"
        bounds = Bounds(max_plan_step_iterations=6)
        specs = [appending(settings, line, goal=f"Append four lines, task {n}", bounds=bounds) for n in range(8)]
        handles = await asyncio.gather(*(start(client, settings, spec) for spec in specs))
        ends = [await ended(handle) for handle in handles]
        seen: set[str] = set()
        for end in ends:
            assert end.outcome.kind is OutcomeKind.FINISHED
            assert_accounts(settings, end)
            rows = rows_of(settings, end.first_run_id)
            assert states(rows, "run") == [EffectState.DONE] * 4
            assert lines_of(end.root / "effects.txt") == ["x"] * 4
            assert not seen & {row.effect_id for row in rows}
            seen |= {row.effect_id for row in rows}

    with worker(settings):
        with_client(settings, work)


@pytest.mark.parametrize("name", ["plan", "run"])
def test_the_same_effect_id_with_another_request_fails_typed(
    home: DevServer, serving: WorkerProcess, name: str
) -> None:
    """Somebody else's row stands where the task's effect would go: it is neither used nor written over."""
    later = settings_of(home.settings.home, queue_prefix=f"later-{name}")  # served only once the row stands there

    async def work(client: Client) -> None:
        pattern = await ended(await start(client, home.settings, appending(home.settings)))
        row = next(row for row in rows_of(home.settings, pattern.first_run_id) if row.name == name)
        handle = await start(client, later, appending(later))
        foreign = claim_for_another(later, handle, row)
        with worker(later):
            end = await ended(handle)
        assert (end.outcome.kind, end.outcome.error_type) == (OutcomeKind.FAILED, "EffectMismatch")
        asked = "plan" if name == "plan" else "perform_action"
        assert [attempt for call, attempt in await attempts(handle) if call == asked] == [1]
        assert rows_of(later, "another chain") == foreign
        root = next(later.workspaces_dir.glob(f"{handle.id}.*/files"))
        assert not (root / "out.txt").exists()

    with_client(home.settings, work)


def claim_for_another(settings: Settings, handle: Handle, row: EffectRow) -> list[EffectRow]:
    """Write a claim where the task's effect like ``row`` will go, but for another request; return what stands there."""
    key = CallKey(
        workflow_id=handle.id,
        run_id=handle.first_execution_run_id or "",
        first_run_id="another chain",
        seq=int(row.effect_id.rsplit(":", 1)[1]),
    )
    digest = hashlib.sha256(b"another request").hexdigest()
    ledger = Ledger(settings.database_url)
    ledger.open(
        Intent(key=key, kind=row.kind, name=row.name, digest=digest, reservation=Reservation(), limits=Limits())
    )
    return ledger.rows("another chain")
