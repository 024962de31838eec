"""An action is claimed, performed once, and answered from the record ever after."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.workspace_activities import WorkspaceActivities
from schemas.actions import ObservationStatus
from schemas.base import rebuild
from schemas.budget import Limits, Spend
from schemas.effects import EffectState, Intent, Opened
from schemas.workspace import ActionReply
from stores.ledger import FRESH_SECONDS, Ledger
from tests.activities.workspace_bench import CHAIN, WorkspaceBench
from tests.support.aio import run_activity
from tests.support.processes import eventually

ONE_CALL = Spend(tool_calls=1)


@pytest.fixture
def bench(tmp_path: Path) -> WorkspaceBench:
    return WorkspaceBench(tmp_path, files={"a.txt": "one\n"})


def test_an_action_is_performed_once_and_recorded(bench: WorkspaceBench) -> None:
    request = bench.request("run", command="echo x >> log; echo done")
    first = bench.perform(request)
    assert first.observation.status is ObservationStatus.SUCCEEDED
    assert first.observation.effect_id == request.key.effect_id
    assert (first.charged, first.chain, first.over) == (ONE_CALL, ONE_CALL, None)
    assert bench.perform(request) == first
    assert bench.reconcile(request) == first
    assert (bench.root / "log").read_text() == "x\n"
    (row,) = bench.ledger.rows(CHAIN)
    assert (row.state, row.charged) == (EffectState.DONE, ONE_CALL)


def test_a_failed_command_is_done_and_counts(bench: WorkspaceBench) -> None:
    reply = bench.perform(bench.request("run", command="exit 1"))
    assert (reply.observation.status, reply.charged) == (ObservationStatus.FAILED, ONE_CALL)


def test_at_its_time_limit_an_action_is_interrupted_in_the_ledger(bench: WorkspaceBench) -> None:
    reply = bench.perform(bench.request("run", timeout_seconds=1, command="sleep 60"))
    assert reply.observation.status is ObservationStatus.TIMED_OUT
    assert bench.ledger.rows(CHAIN)[0].state is EffectState.INTERRUPTED


def test_the_limit_of_tool_calls_is_the_ledgers_to_keep(bench: WorkspaceBench) -> None:
    limits = Limits(tool_calls=1)
    assert bench.perform(bench.request("run", limits=limits, command="echo x >> log")).over is None
    reply = bench.perform(bench.request("run", limits=limits, command="echo y >> log"))
    assert (reply.over, reply.observation.status, reply.charged) == ("tool_calls", ObservationStatus.REFUSED, Spend())
    assert reply.observation.effect_id is None
    assert (bench.root / "log").read_text() == "x\n"


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("run", {"command": 5}, "command: Input should be a valid string (got 5)"),
        ("run", {}, "command: Field required. It takes command"),
        ("run", {"command": "x", "shell": "zsh"}, "shell: Extra inputs are not permitted"),
        ("delete_all", {}, "there is no tool 'delete_all' here; the tools are run, read_file"),
    ],
)
def test_an_invalid_action_reaches_neither_tool_nor_ledger(
    bench: WorkspaceBench, tool: str, arguments: dict[str, Any], said: str
) -> None:
    reply = bench.perform(bench.request(tool, **arguments))
    assert reply.observation.status is ObservationStatus.INVALID
    assert said in reply.observation.summary
    assert (reply.charged, reply.observation.effect_id) == (Spend(), None)
    assert bench.ledger.rows(CHAIN) == []


def test_arguments_are_checked_again_where_they_are_used(bench: WorkspaceBench) -> None:
    request = bench.request("run", command=5)
    claimed_valid = rebuild(request, action=rebuild(request.action, invalid=None))
    assert bench.perform(claimed_valid).observation.status is ObservationStatus.INVALID


@pytest.mark.parametrize("change", ["arguments", "tool"])
def test_one_effect_id_never_stands_for_two_actions(bench: WorkspaceBench, change: str) -> None:
    request = bench.request("read_file", path="a.txt")
    bench.perform(request)
    changed = bench.artifacts.put_text('{"path":"b.txt"}')
    action = rebuild(request.action, **({"arguments": changed} if change == "arguments" else {"tool": "list_files"}))
    with pytest.raises(ApplicationError) as refused:
        bench.perform(rebuild(request, action=action))
    assert (refused.value.type, refused.value.non_retryable) == ("EffectMismatch", True)


def test_two_attempts_at_once_perform_it_at_most_once(bench: WorkspaceBench) -> None:
    request = bench.request("run", command="echo x >> log; sleep 0.5")
    ends: list[object] = []

    def attempt() -> None:
        try:
            ends.append(bench.perform(request).observation.status)
        except ApplicationError as error:
            ends.append(error.type)

    threads = [threading.Thread(target=attempt) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log = (bench.root / "log").read_text() if (bench.root / "log").exists() else ""
    assert log in ("", "x\n")
    assert len(ends) == 3
    assert bench.ledger.totals(CHAIN).open_effects == 0


class SlowLedger(Ledger):
    """A ledger that answers a claim when it is told to."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked = threading.Event()
        self.answer = threading.Event()

    def open(self, intent: Intent) -> Opened:
        self.asked.set()
        self.answer.wait(30)
        return super().open(intent)


def test_cancelled_while_it_is_claimed_an_action_does_nothing_and_costs_nothing(bench: WorkspaceBench) -> None:
    request = bench.request("run", command="echo x >> log")
    ledger = SlowLedger(f"sqlite:///{bench.home}/surefoot.db")
    activities = WorkspaceActivities(ledger, bench.artifacts, bench.home / "workspaces")

    async def cancel_while_asking() -> ActionReply:
        environment = ActivityEnvironment()
        action = asyncio.ensure_future(environment.run(activities.perform_action, request))
        await asyncio.to_thread(ledger.asked.wait, 30)
        environment.cancel()
        await asyncio.sleep(0)
        ledger.answer.set()
        return await action

    reply = asyncio.run(cancel_while_asking())
    assert (reply.observation.status, reply.charged) == (ObservationStatus.INTERRUPTED, Spend())
    assert not (bench.root / "log").exists()
    assert bench.ledger.rows(CHAIN)[0].state is EffectState.INTERRUPTED


class OvertakenLedger(Ledger):
    """A ledger whose answer to a note comes so late that another attempt has taken the effect over meanwhile."""

    def open(self, intent: Intent) -> Opened:
        self.intent = intent
        return super().open(intent)

    def note(self, *args: Any, **facts: Any) -> None:
        super().note(*args, **facts)
        super().open(self.intent)
        time.sleep(2 * FRESH_SECONDS)


def test_an_attempt_that_was_held_up_after_its_note_makes_sure_of_its_claim_before_it_acts(
    bench: WorkspaceBench,
) -> None:
    request = bench.request("write_file", path="b.txt", content="whole")
    ledger = OvertakenLedger(f"sqlite:///{bench.home}/surefoot.db")
    activities = WorkspaceActivities(ledger, bench.artifacts, bench.home / "workspaces")
    with pytest.raises(ApplicationError, match="is lost"):
        run_activity(activities.perform_action, request)
    assert not (bench.root / "b.txt").exists()


def test_a_cancel_that_comes_too_late_changes_nothing(bench: WorkspaceBench) -> None:
    request = bench.request("write_file", path="b.txt", content="whole")

    async def cancel_while_writing() -> ActionReply:
        environment = ActivityEnvironment()
        action = asyncio.ensure_future(environment.run(bench.activities.perform_action, request))
        await asyncio.to_thread(eventually, (bench.root / "b.txt").exists)
        environment.cancel()
        return await action

    assert asyncio.run(cancel_while_writing()).observation.status is ObservationStatus.SUCCEEDED
    assert (bench.root / "b.txt").read_text() == "whole"
