"""SIGKILL of the worker at every boundary of a model call and of every class of tool.

Each effect happens once or is reported unknown, no completed model call is repeated, and the bill equation is exact.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.effects import EffectKind, EffectState
from schemas.outcome import OutcomeKind
from stores.ledger import Ledger
from tests.proof.bench import Ended, Kill, lines_of, one_step, rehearsed_spec
from tests.support.judging import assert_bill_equation
from tests.support.killing_worker import POINTS
from tests.support.server import DevServer
from tests.support.tasks import rehearsed_bill, reply

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


def script(tool: str) -> list[dict[str, object]]:
    """Return a script that uses ``tool``, and again where its effect is unknown; then writes the wanted file."""
    first = {"thought": "rehearsed", "actions": [TOOLS[tool]], "more": True}
    last = {"thought": "rehearsed", "actions": [FINISH], "more": False}
    return one_step(
        "Write out.txt",
        reply("propose_action", last, when=[f"^{tool} .*: (succeeded|unknown)\\.|hello hello"]),
        reply("propose_action", first),
    )


@pytest.mark.parametrize(("point", "name"), list(cases()))
def test_sigkill(home: DevServer, tmp_path: Path, point: str, name: str) -> None:
    tool = name if name in TOOLS else "run"
    spec = rehearsed_spec(home.settings, script(tool))
    end = Kill(point, name, tmp_path / "killed").run(home.settings, spec, "--without-litellm", seconds=60)
    assert end.outcome.kind is OutcomeKind.FINISHED
    _judge(home, end, tool)


def _judge(home: DevServer, end: Ended, tool: str) -> None:
    ledger = Ledger(home.settings.database_url)
    run = ledger.run(end.handle.id)
    assert run is not None
    rows = ledger.rows(run.first_run_id)
    assert all(row.state is not EffectState.INTENT for row in rows)
    assert_bill_equation(rows, rehearsed_bill(home.settings), end.spend_microusd)
    digests = Counter(row.effect_id for row in rows)
    assert max(digests.values()) == 1
    happened = len(lines_of(end.root / "effects.txt"))
    states = Counter(row.state for row in rows if row.kind is EffectKind.ACTION and row.name == "run")
    assert states[EffectState.DONE] <= happened <= states[EffectState.DONE] + states[EffectState.UNKNOWN]
    if tool == "edit_file":
        assert (end.root / "readme.txt").read_text() == "hello hello\n"
