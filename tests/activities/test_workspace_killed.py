"""A worker that dies takes its commands with it, and what it did is found out afterwards."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.workspaces.processes import end_guard, is_alive
from schemas.actions import ObservationStatus
from schemas.budget import Spend
from schemas.effects import EffectState, ProcessGroup
from schemas.workspace import ActionReply, ActionRequest, CloseWorkspaceRequest, WorkspaceKind
from tests.activities.workspace_bench import CHAIN, WorkspaceBench
from tests.support.aio import run_activity
from tests.support.processes import eventually, processes_with, stubborn_tree

PROJECT = Path(__file__).parents[2]
ONE_CALL = Spend(tool_calls=1)


@pytest.fixture(params=list(WorkspaceKind))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> WorkspaceBench:
    return WorkspaceBench(tmp_path, request.param)


@pytest.fixture
def local(tmp_path: Path) -> WorkspaceBench:
    return WorkspaceBench(tmp_path, WorkspaceKind.LOCAL, {"code.txt": "one two three\n"})


@contextlib.contextmanager
def start_worker(
    bench: WorkspaceBench, request: ActionRequest, kill_point: str = "never"
) -> Iterator[subprocess.Popen[str]]:
    """Start another process that performs the request, killed at the end."""
    (bench.home / "request.json").write_text(request.model_dump_json())
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.activities.workspace_process", str(bench.home), kill_point],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
    )
    with worker:
        try:
            yield worker
        finally:
            worker.kill()


def die(bench: WorkspaceBench, request: ActionRequest, kill_point: str) -> None:
    """Perform the request in a worker that is killed on the way."""
    with start_worker(bench, request, kill_point) as worker:
        worker.communicate(timeout=60)
    assert worker.returncode == -signal.SIGKILL


def state_of(bench: WorkspaceBench, request: ActionRequest) -> EffectState:
    return next(row.state for row in bench.ledger.rows(CHAIN) if row.effect_id == request.key.effect_id)


def test_sigkill_of_the_worker_leaves_no_process_of_its_command(bench: WorkspaceBench) -> None:
    """Also those that have left its session and its parents, and ignore what can be ignored."""
    token = f"token-killed-{os.getpid()}-{bench.workspace.kind}"
    request = bench.request("run", command=stubborn_tree(token, "ready"))
    with start_worker(bench, request) as worker:
        assert eventually((bench.root / "ready").exists)
        assert eventually(lambda: len(processes_with(token)) >= 4)
        worker.kill()
    assert eventually(lambda: not processes_with(token))
    assert not (bench.root / "after").exists()

    reply = bench.reconcile(request)
    assert reply.observation.status is ObservationStatus.UNKNOWN
    assert "whether and how far it happened is not known" in reply.observation.summary
    assert (reply.charged, reply.chain) == (ONE_CALL, ONE_CALL)
    assert bench.reconcile(request).observation == reply.observation
    assert bench.perform(request).observation == reply.observation
    assert not (bench.root / "after").exists()


def test_a_guard_that_outlives_its_attempt_is_ended_by_the_reconciler(bench: WorkspaceBench) -> None:
    """The attempt's worker hangs: stopped, it neither works nor closes the pipe to its guard."""
    token = f"token-hung-{os.getpid()}-{bench.workspace.kind}"
    request = bench.request("run", command=stubborn_tree(token, "ready"))
    with start_worker(bench, request) as worker:
        assert eventually((bench.root / "ready").exists)
        worker.send_signal(signal.SIGSTOP)
        reply = bench.reconcile(request)
        assert processes_with(token) == []
        worker.send_signal(signal.SIGCONT)
        worker.communicate(timeout=60)
    assert "what still ran has been ended" in reply.observation.summary
    assert worker.returncode not in (0, None)
    assert state_of(bench, request) is EffectState.UNKNOWN
    assert not (bench.root / "after").exists()


def test_closing_ends_what_the_chains_dead_attempts_left_running(local: WorkspaceBench) -> None:
    token = f"token-closed-{os.getpid()}"
    request = local.request("run", command=stubborn_tree(token, "ready"))
    close = CloseWorkspaceRequest(workspace=local.workspace, first_run_id=CHAIN)
    with start_worker(local, request) as worker:
        assert eventually((local.root / "ready").exists)
        worker.send_signal(signal.SIGSTOP)
        reply = run_activity(local.activities.close_workspace, close)
        assert processes_with(token) == []
        worker.kill()
    assert reply.killed == 1
    assert "created ready" in local.text(reply.difference)
    assert run_activity(local.activities.close_workspace, close).killed == 0


def test_a_guard_that_obeys_nothing_is_ended_with_its_tree(local: WorkspaceBench) -> None:
    token = f"token-stopped-{os.getpid()}"
    request = local.request("run", command=stubborn_tree(token, "ready"))
    with start_worker(local, request) as worker:
        assert eventually((local.root / "ready").exists)
        process = local.ledger.unsettled(CHAIN)[0].process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        worker.send_signal(signal.SIGSTOP)
        assert end_guard(process, patience_seconds=0.2)
        assert processes_with(token) == []
        assert not is_alive(process)
        worker.kill()


def test_a_process_that_has_only_the_pid_of_a_guard_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        guard = ProcessGroup(host=os.uname().nodename, pid=other.pid, started_ticks=1)
        assert end_guard(guard) is False
        elsewhere = ProcessGroup(host="another-host", pid=other.pid, started_ticks=1)
        assert end_guard(elsewhere) is False
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize(
    ("tool", "kill_point", "status", "charged"),
    [
        ("run", "after_intent", ObservationStatus.VOID, Spend()),
        ("run", "after_note", ObservationStatus.UNKNOWN, ONE_CALL),
        ("run", "after_effect", ObservationStatus.UNKNOWN, ONE_CALL),
        ("run", "after_outcome", ObservationStatus.SUCCEEDED, ONE_CALL),
        ("edit_file", "after_intent", ObservationStatus.VOID, Spend()),
        ("edit_file", "after_note", ObservationStatus.VOID, Spend()),
        ("edit_file", "after_effect", ObservationStatus.SUCCEEDED, ONE_CALL),
        ("edit_file", "after_outcome", ObservationStatus.SUCCEEDED, ONE_CALL),
        ("write_file", "after_intent", ObservationStatus.VOID, Spend()),
        ("write_file", "after_effect", ObservationStatus.VOID, ONE_CALL),
        ("read_file", "after_note", ObservationStatus.VOID, ONE_CALL),
    ],
)
def test_after_a_kill_at_any_point_the_action_is_settled_and_never_repeated(
    local: WorkspaceBench, tool: str, kill_point: str, status: ObservationStatus, charged: Spend
) -> None:
    arguments: dict[str, Any] = {
        "run": {"command": "echo once >> code.txt"},
        "edit_file": {"path": "code.txt", "old": "two", "new": "2"},
        "write_file": {"path": "code.txt", "content": "new"},
        "read_file": {"path": "code.txt"},
    }[tool]
    request = local.request(tool, **arguments)
    die(local, request, kill_point)
    left = (local.root / "code.txt").read_text()
    reply = local.reconcile(request)
    assert (reply.observation.status, reply.charged, reply.chain) == (status, charged, charged)
    assert (local.root / "code.txt").read_text() == left
    assert local.perform(request) == reply
    assert (local.root / "code.txt").read_text() == left
    assert local.ledger.totals(CHAIN).open_effects == 0


def test_an_attempt_that_finds_a_dead_ones_claim_reconciles_instead_of_repeating(local: WorkspaceBench) -> None:
    request = local.request("run", command="echo once >> code.txt")
    die(local, request, "after_effect")
    assert local.perform(request).observation.status is ObservationStatus.UNKNOWN
    assert (local.root / "code.txt").read_text().count("once") == 1


def test_an_edit_whose_file_was_changed_by_others_since_is_unknown(local: WorkspaceBench) -> None:
    request = local.request("edit_file", path="code.txt", old="two", new="2")
    die(local, request, "after_effect")
    (local.root / "code.txt").write_text("something else")
    assert local.reconcile(request).observation.status is ObservationStatus.UNKNOWN


def test_a_first_attempt_that_comes_after_the_reconciler_does_nothing(local: WorkspaceBench) -> None:
    request = local.request("run", command="echo late >> code.txt")
    reply = local.reconcile(request)
    assert (reply.observation.status, reply.charged) == (ObservationStatus.VOID, Spend())
    assert local.perform(request).observation == reply.observation
    assert "late" not in (local.root / "code.txt").read_text()


def test_a_cancelled_command_is_gone_before_its_observation_comes(bench: WorkspaceBench) -> None:
    token = f"token-cancelled-{os.getpid()}-{bench.workspace.kind}"
    request = bench.request("run", command=f"echo begun; {stubborn_tree(token, 'ready')}")

    async def cancel_when_ready() -> ActionReply:
        environment = ActivityEnvironment()
        action = asyncio.ensure_future(environment.run(bench.activities.perform_action, request))
        await asyncio.to_thread(eventually, (bench.root / "ready").exists)
        environment.cancel()
        return await action

    reply = asyncio.run(cancel_when_ready())
    assert processes_with(token) == []
    assert reply.observation.status is ObservationStatus.INTERRUPTED
    assert bench.shown(reply.observation) == "begun\n"
    assert state_of(bench, request) is EffectState.INTERRUPTED
    assert reply.chain == ONE_CALL
    assert bench.perform(request) == reply
