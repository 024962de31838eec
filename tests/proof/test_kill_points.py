"""SIGKILL of the worker at every boundary of a model call and of every class of tool.

Each effect happens once or is reported unknown, no completed model call is repeated, and the bill equation is exact.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.effects import EffectKind, EffectState
from schemas.outcome import OutcomeKind
from stores.archive import RunArchive
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from tests.proof.bench import Ended, Kill, lines_of, one_step, rehearsed_spec, serving_home
from tests.support.events import assert_each_action_has_one_observation
from tests.support.judging import assert_bill_equation
from tests.support.killing_worker import POINTS
from tests.support.postgres import PostgresServer
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
NAMES = {"sqlite": ("plan", "propose_action", *TOOLS), "postgresql": ("propose_action", "run")}
"""What is killed at, with the ledger in each database: everything in one, one call of each kind in the other."""


def cases() -> Iterator[object]:
    """Yield every point for model nodes and for tools."""
    for database, names in NAMES.items():
        for name in names:
            for point in POINTS:
                fast = database == "sqlite" and (point, name) in FAST
                marks = () if fast else (pytest.mark.slow,)
                yield pytest.param(database, point, name, marks=marks, id=f"{database}-{name}-{point}")


@pytest.fixture(scope="module")
def postgresql_home(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[DevServer]:
    with serving_home(tmp_path_factory.mktemp("home"), database_url=postgres.fresh()) as server:
        yield server


def script(tool: str) -> list[dict[str, object]]:
    """Return a script that uses ``tool``, and again where its effect is unknown; then writes the wanted file."""
    first = {"thought": "rehearsed", "actions": [TOOLS[tool]], "more": True}
    last = {"thought": "rehearsed", "actions": [FINISH], "more": False}
    return one_step(
        "Write out.txt",
        reply("propose_action", last, when=[f"^{tool} .*: (succeeded|unknown)\\.|hello hello"]),
        reply("propose_action", first),
    )


@pytest.mark.parametrize(("database", "point", "name"), list(cases()))
def test_sigkill(request: pytest.FixtureRequest, tmp_path: Path, database: str, point: str, name: str) -> None:
    home: DevServer = request.getfixturevalue("home" if database == "sqlite" else "postgresql_home")
    assert home.settings.database_url.startswith(database)
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
    archived = RunArchive(home.settings.archive_dir, ArtifactStore(home.settings.artifacts_dir))
    record = archived.read(end.handle.id, run.first_run_id)
    assert (record.missing, record.complete) == ((), True)
    assert_each_action_has_one_observation(record.events)
    digests = Counter(row.effect_id for row in rows)
    assert max(digests.values()) == 1
    happened = len(lines_of(end.root / "effects.txt"))
    states = Counter(row.state for row in rows if row.kind is EffectKind.ACTION and row.name == "run")
    assert states[EffectState.DONE] <= happened <= states[EffectState.DONE] + states[EffectState.UNKNOWN]
    if tool == "edit_file":
        assert (end.root / "readme.txt").read_text() == "hello hello\n"
