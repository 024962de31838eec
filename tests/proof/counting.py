"""Tasks whose commands each append a word of their own to a file, so that every effect can be told from the others."""

from typing import Any

from schemas.effects import EffectState
from schemas.outcome import OutcomeKind
from schemas.task import Bounds, TaskSpec
from stores.artifacts import ArtifactStore
from stores.records import EffectRow
from stores.settings import Settings
from tests.proof.bench import Ended, lines_of, one_step, rows_of
from tests.support.judging import assert_bill_equation, tally
from tests.support.tasks import commands, file_requirement, plan, rehearsed_bill, rehearsed_choice, reply, task_spec

FILE = "effects.txt"
ENOUGH = "enough"
BOUNDS = Bounds(max_plan_step_iterations=20, max_plan_step_actions=50)


def counting_spec(
    settings: Settings, words: int, seconds: float, thinking_seconds: float = 0.0, **changes: Any
) -> TaskSpec:
    """Return a task that appends ``w1`` to ``w<words>``, one command each, and is finished then or at ENOUGH.

    A word that is in the file, or in the output of a command, is not asked for again: what is unknown is looked up in
    the next frame. Each command takes ``seconds``, half of them before its effect; each model call
    takes ``thinking_seconds``.
    """
    artifacts = ArtifactStore(settings.artifacts_dir)
    fields = {"bounds": BOUNDS, "requirements": (file_requirement("done.txt"),), **changes}
    return task_spec(settings, rehearsed_choice(artifacts, _script(words, seconds), thinking_seconds), **fields)


def _script(words: int, seconds: float) -> list[dict[str, Any]]:
    finish = commands("touch done.txt")
    return one_step(
        "Append the words",
        reply("replan", plan("Append the words")),
        reply("propose_action", finish, when=[rf"^- \w+: {ENOUGH}$"]),
        *(_append(number, seconds) for number in range(1, words + 1)),
        reply("propose_action", finish),
    )


def _append(number: int, seconds: float) -> dict[str, Any]:
    word = f"w{number}"
    line = f"sleep {seconds / 2}; echo {word} >> {FILE}; echo {word}; sleep {seconds / 2}"
    return reply("propose_action", commands(line, more=True), unless=[f"^{word}$"])


def judge(settings: Settings, end: Ended) -> list[EffectRow]:
    """Check such a task from outside, and return its rows: finished, nothing lost or done twice, the bill exact."""
    assert end.outcome.kind is OutcomeKind.FINISHED, end.outcome
    rows = rows_of(settings, end.first_run_id)
    assert not [row for row in rows if row.state is EffectState.INTENT]
    result = tally(rows, lines_of(end.root / FILE))
    assert (result.lost, result.doubled) == ((), ())
    assert_bill_equation(rows, rehearsed_bill(settings), end.spend_microusd)
    return rows
