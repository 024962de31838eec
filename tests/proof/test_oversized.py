"""Oversized things become artifacts or typed ends: attempts are bounded, history and state stay small."""

import sys
from typing import Any

import pytest
from pydantic import ValidationError
from temporalio.client import Client

from schemas.outcome import OutcomeKind, StopReason
from schemas.task import Bounds, TaskSpec
from schemas.workspace import WorkspaceLimits
from stores.settings import Settings
from tests.proof.bench import (
    Ended,
    attempts,
    chain_of,
    ended,
    events_of,
    final_state,
    one_step,
    rehearsed_spec,
    rows_of,
    start,
    with_client,
)
from tests.proof.stub_process import stub_process
from tests.support.judging import assert_bill_equation
from tests.support.server import DevServer, settings_of
from tests.support.tasks import WorkerProcess, commands, plan, rehearsed_bill, reply, task_spec, workspace_spec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MAX_STATE_BYTES = 256_000
MAX_HISTORY_BYTES = 400_000
REPLY_BYTES = 5_000_000
FINISH = "echo done > out.txt"


def script(*replies: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a script with ``replies`` before the usual ones."""
    usual = [reply("replan", plan("Write out.txt")), reply("propose_action", commands(FINISH))]
    return one_step("Write out.txt", *replies, *usual)


def after(command: str, shows: str) -> list[dict[str, Any]]:
    """Return a script that runs ``command``, and finishes once ``shows`` is seen of it."""
    return script(
        reply("propose_action", commands(FINISH), when=[shows]),
        reply("propose_action", commands(command)),
    )


def run(settings: Settings, spec: TaskSpec, label: str) -> Ended:
    """Run a task to its end, and check how much it has left in history and state."""

    async def work(client: Client) -> Ended:
        end = await ended(await start(client, settings, spec))
        runs = await chain_of(client, end.handle.id)
        history = max(run.history_bytes for run in runs)
        state = len(final_state(settings, end).model_dump_json().encode())
        sys.stdout.write(f"\n{label}: {end.outcome.label}, history {history:,} bytes, state {state:,} bytes\n")
        assert history < MAX_HISTORY_BYTES
        assert state < MAX_STATE_BYTES
        assert {attempt for _, attempt in await attempts(end.handle)} == {1}
        return end

    end = with_client(settings, work)
    if all(choice.rehearsed for choice in spec.models.values()):
        assert_bill_equation(rows_of(settings, end.first_run_id), rehearsed_bill(settings), end.spend_microusd)
    return end


def texts(settings: Settings, end: Ended, kind: str) -> list[str]:
    """Return the texts of a run's events of one kind."""
    return [event.text for event in events_of(settings, final_state(settings, end)) if event.kind == kind]


def test_three_megabytes_of_output(home: DevServer, serving: WorkerProcess) -> None:
    command = "python3 -c \"print('x' * 3_000_000); print('the end')\""
    end = run(home.settings, rehearsed_spec(home.settings, after(command, "^the end$")), "3 MB of output")
    assert end.outcome.kind is OutcomeKind.FINISHED
    sizes = [path.stat().st_size for path in home.settings.artifacts_dir.glob("*/*")]
    assert 3_000_009 in sizes  # all of it is an artifact


def test_output_without_end(home: DevServer, serving: WorkerProcess) -> None:
    bounds = Bounds(action_timeout_seconds=3)
    spec = rehearsed_spec(home.settings, after("yes endless", "killed at its time limit"), bounds=bounds)
    end = run(home.settings, spec, "output without end")
    assert end.outcome.kind is OutcomeKind.FINISHED
    assert "timed_out" in texts(home.settings, end, "observation")[0]
    assert max(path.stat().st_size for path in home.settings.artifacts_dir.glob("*/*")) < 20_000_000


def test_a_file_without_end(home: DevServer, serving: WorkerProcess) -> None:
    limits = WorkspaceLimits(file_mb=20)
    workspace = workspace_spec(home.settings, limits=limits)
    spec = rehearsed_spec(home.settings, after("yes > endless.txt", r"^endless.txt  \("), workspace=workspace)
    end = run(home.settings, spec, "a file without end")
    assert end.outcome.kind is OutcomeKind.FINISHED
    assert (end.root / "endless.txt").stat().st_size == 20 * 2**20


def test_a_hundred_megabytes_in_one_file(home: DevServer, serving: WorkerProcess) -> None:
    command = "head -c 100000000 /dev/urandom > big.bin"
    spec = rehearsed_spec(home.settings, after(command, r"^big\.bin  \(100,000,000"))
    end = run(home.settings, spec, "a file of 100 MB")
    assert end.outcome.kind is OutcomeKind.FINISHED
    assert max(path.stat().st_size for path in home.settings.artifacts_dir.glob("*/*")) < 20_000_000


def test_ten_thousand_files(home: DevServer, serving: WorkerProcess) -> None:
    command = "for i in $(seq 10000); do echo $i > file-$i.txt; done"
    spec = rehearsed_spec(home.settings, after(command, "^10,00[12] files in the workspace"))
    end = run(home.settings, spec, "10,000 files")
    assert end.outcome.kind is OutcomeKind.FINISHED
    assert len(list(end.root.iterdir())) == 10_002


@pytest.mark.parametrize("size", [REPLY_BYTES, REPLY_BYTES + 1000])
@pytest.mark.parametrize("node", ["plan", "summarize_actions", "propose_action", "is_step_done"])
def test_a_reply_of_five_megabytes(home: DevServer, serving: WorkerProcess, node: str, size: int) -> None:
    """It is kept whole up to its bound, is no plan, action or verdict, and is not sent back in a repair request."""
    before = len(rehearsed_bill(home.settings))
    bounds = Bounds(max_plan_versions=3, max_plan_step_iterations=2)
    replies = script(reply(node, "x" * size)) if node != "summarize_actions" else []
    if node == "summarize_actions":
        replies = [reply(node, "x" * size), *after("echo tried", "^tried$")]
    spec = rehearsed_spec(home.settings, replies, bounds=bounds)
    end = run(home.settings, spec, f"{node}: a reply of {size:,} bytes")
    if node in ("plan", "propose_action"):
        assert end.outcome.reason is StopReason.MAX_PLAN_VERSIONS
    else:
        assert end.outcome.kind is OutcomeKind.FINISHED
    largest = max(line["input_tokens"] for line in rehearsed_bill(home.settings)[before:])
    assert largest < 20_000


def test_a_reply_of_five_megabytes_over_http(home: DevServer, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = settings_of(home.settings.home, queue_prefix="http")  # served by the one worker that has the adapter
    rules = [{"when": "", "content": "twelve bytes", "content_repeat": REPLY_BYTES // 12}]
    with stub_process(tmp_path_factory.mktemp("stub") / "bill.jsonl", rules) as stub:
        adapter = WorkerProcess(settings)
        try:
            bounds = Bounds(max_plan_versions=2)
            end = run(settings, task_spec(settings, stub.choice(), bounds=bounds), "5 MB over HTTP")
        finally:
            adapter.kill()
        assert end.outcome.reason is StopReason.MAX_PLAN_VERSIONS
        assert len(stub.requests(end.handle.id)) == 2
        assert_bill_equation(rows_of(settings, end.first_run_id), stub.bill(), end.spend_microusd)


def test_a_goal_of_two_hundred_kilobytes_is_refused_before_the_start(home: DevServer) -> None:
    with pytest.raises(ValidationError, match="goal"):
        rehearsed_spec(home.settings, script(), goal="g" * 200_000)
