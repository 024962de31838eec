"""The commands while the ledger does not answer: what Temporal knows is told, and what is missing is said."""

import json
from collections.abc import Iterator

import pytest

from client import asking, listing, telling
from client.api import Surefoot
from client.session import with_session
from schemas.messages import SignalName
from schemas.outcome import EXIT_VERIFIED
from schemas.workspace import WorkspaceKind
from stores.artifacts import ArtifactStore
from stores.settings import Settings
from tests.support.aio import run
from tests.support.server import DevServer, settings_of
from tests.support.tasks import commands, plan, rehearsed_choice, reply, task_spec, verdict, worker, workspace_spec

SCRIPT = [
    reply("plan", plan("Write out.txt")),
    reply("is_step_done", verdict(False)),
    reply("propose_action", commands("sleep 600")),
]


@pytest.fixture(scope="module")
def served(server: DevServer) -> Iterator[Settings]:
    """A home with a server and a worker process."""
    with worker(server.settings):
        yield server.settings


@pytest.fixture
def away(served: Settings) -> Settings:
    """The same home, for a client whose ledger does not answer."""
    nobody = served.home / "a-file"
    nobody.touch()
    return settings_of(served.home, database_url=f"sqlite:///{nobody}/surefoot.db")


def submitted(settings: Settings) -> str:
    """Submit a task whose command sleeps, and return its id."""

    async def go() -> str:
        choice = rehearsed_choice(ArtifactStore(settings.artifacts_dir), SCRIPT)
        spec = task_spec(settings, choice, workspace=workspace_spec(settings, WorkspaceKind.LOCAL))
        return (await (await Surefoot.open(settings)).submit(spec)).id

    return run(go())


def test_a_task_is_told_shown_and_listed_without_the_ledger(
    served: Settings, away: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    task_id = submitted(served)
    for name, answer in ((SignalName.PAUSE, "paused"), (SignalName.RESUME, "resumed"), (SignalName.STEER, "the next")):
        assert telling.tell(away, task_id, name, "lunch", "ann", as_json=False) == EXIT_VERIFIED
        assert answer in capsys.readouterr().out

    assert asking.show(away, task_id, 15, False, as_json=True) == EXIT_VERIFIED
    out, err = capsys.readouterr()
    shown = json.loads(out)
    assert shown["state"]["messages"]["received"] == 3
    assert shown["effects"] is None
    assert "the list of effects is missing: the ledger's database" in err

    assert listing.ps(away, 20, False, as_json=True) == EXIT_VERIFIED
    out, err = capsys.readouterr()
    assert task_id in out
    assert "the ledger's database" in err

    assert telling.tell(away, task_id, SignalName.CANCEL, "", "ann", as_json=False) == EXIT_VERIFIED
    end = with_session(away, lambda session: Surefoot(session).task(task_id).result())
    assert end.outcome is not None
    assert end.outcome.label == "CANCELLED"
    assert "its row is missing: the ledger's database" in end.note
