"""A rehearsed task on a real server with a worker in its own process, real workspaces and a real ledger."""

from collections.abc import Iterator

import pytest

from schemas.outcome import OutcomeKind
from stores.ledger import Ledger
from stores.settings import Settings
from tests.proof.bench import rehearsed_spec, run, serving_home
from tests.support.tasks import commands, plan, rehearsed_bill, reply, verdict, worker

SCRIPT = [
    reply("plan", plan("Write out.txt")),
    reply("is_step_done", verdict(False)),
    reply("propose_action", commands("echo done > out.txt")),
]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a home with a server and a worker."""
    with serving_home(tmp_path_factory.mktemp("home")) as server, worker(server.settings):
        yield server.settings


def test_a_rehearsed_task_runs_from_plan_to_verified_result(settings: Settings) -> None:
    spec = rehearsed_spec(settings, SCRIPT)
    spec = spec.model_copy(update={"evaluator": (spec.requirements[0].check,)})
    end = run(settings, spec, "task-first")
    assert end.outcome.kind is OutcomeKind.FINISHED
    assert end.outcome.verified is True
    assert (end.root / "out.txt").read_text() == "done\n"
    recorded = Ledger(settings.database_url).run("task-first")
    assert recorded is not None
    rows = Ledger(settings.database_url).rows(recorded.first_run_id)
    assert [(row.name, row.state.value) for row in rows] == [
        ("plan", "done"),
        ("is_step_done", "done"),
        ("propose_action", "done"),
        ("run", "done"),
    ]
    bill = [line for line in rehearsed_bill(settings) if line["effect_id"].startswith("task-first:")]
    assert sum(line["microusd"] for line in bill) == end.spend_microusd > 0


def test_the_same_workflow_id_used_again_is_another_task_with_another_workspace(settings: Settings) -> None:
    spec = rehearsed_spec(settings, SCRIPT)
    first = run(settings, spec, "task-twice")
    second = run(settings, spec, "task-twice")
    assert first.outcome.kind is second.outcome.kind is OutcomeKind.FINISHED
    assert second.root != first.root
    assert second.result.summary.spend == first.result.summary.spend


def test_a_secret_that_the_worker_does_not_know_ends_the_task_before_anything_is_paid(settings: Settings) -> None:
    end = run(settings, rehearsed_spec(settings, SCRIPT, secrets=("NONE_SUCH",)), "task-secret")
    assert (end.outcome.kind, end.outcome.error_type) == (OutcomeKind.FAILED, "SecretUnresolved")
    assert "add [secrets.NONE_SUCH] with env, file or command to config.toml" in end.outcome.detail
    assert [line for line in rehearsed_bill(settings) if line["effect_id"].startswith("task-secret:")] == []


def test_a_script_that_has_no_answer_ends_not_finished(settings: Settings) -> None:
    spec = rehearsed_spec(settings, [reply("plan", plan("Write out.txt"))])
    spec = spec.model_copy(update={"bounds": spec.bounds.model_copy(update={"max_plan_versions": 1})})
    end = run(settings, spec, "task-silent")
    assert end.outcome.kind is OutcomeKind.STOPPED_INCOMPLETE
    assert end.outcome.verified is None
