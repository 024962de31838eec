"""What commands that only look say while a task runs, after its end, and once the embedded server is stopped."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client.embedded import supervisor_of
from schemas.outcome import EXIT_BAD_INPUT, EXIT_PREREQUISITE, EXIT_STOPPED, EXIT_VERIFIED
from tests.client.scenario_files import rehearsed_scenario
from tests.support.command_line import Surefoot, command_line
from tests.support.processes import eventually
from tests.support.server import settings_of

PRINTED = "".join(f"line {number}\n" for number in range(2000))
MORE = """\
workspace: {kind: local}
bounds: {max_plan_versions: 1, max_plan_step_iterations: 1}
evaluator:
  - {kind: command, run: seq 3}
"""


@pytest.fixture(scope="module")
def surefoot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surefoot]:
    """A home of its own."""
    with command_line(settings_of(tmp_path_factory.mktemp("home"))) as commands:
        yield commands


def printing(folder: Path) -> Path:
    """Write a scenario whose action and whose check print much, and which stops incomplete."""
    path = rehearsed_scenario(folder, "seq -f 'line %.0f' 0 1999", MORE)
    check = "check: {kind: command, run: \"seq -f 'line %.0f' 0 1999; exit 1\"}"
    path.write_text(path.read_text().replace("check: {kind: file, path: out.txt}", check))
    return path


def refs(shown: dict[str, Any], kind: str, ref: str) -> list[str]:
    """Return what the events of that kind refer to."""
    return [event["refs"][ref] for event in shown["events"] if event["kind"] == kind and ref in event["refs"]]


def test_whole_outputs_are_printed_and_unknown_ones_answered_with_what_there_is(
    surefoot: Surefoot, tmp_path: Path
) -> None:
    code, out, err = surefoot("run", str(printing(tmp_path)))
    assert code == EXIT_STOPPED, out + err
    task_id = out.split()[1]
    shown = surefoot.state(task_id)
    (observation,) = refs(shown, "observation", "observation")
    frames = refs(shown, "checks", "frame")

    def output(name: str) -> str:
        code, out, err = surefoot.ask("output", task_id, name)
        assert code == EXIT_VERIFIED, err
        return out

    assert output(observation) == PRINTED
    assert output("written") == PRINTED, "the check's"
    assert output("evaluator.1") == "1\n2\n3\n"
    assert output(frames[0]) == "The workspace is empty.\n", "the state keeps a later one"
    reply = next(effect for effect in shown["effects"] if effect["name"] == "plan")
    assert "Write it" in output(reply["effect_id"].rpartition(":")[2])
    told = json.loads(surefoot.ask("output", task_id, observation, "--json")[1])
    assert (told["name"], told["text"]) == (observation, PRINTED)
    assert output(told["artifact"]) == PRINTED

    code, out, err = surefoot.ask("output", task_id, "o999")
    assert (code, out) == (EXIT_BAD_INPUT, "")
    for part in (f"{task_id} has no output o999", "requirements written", "evaluator.1", f"observations {observation}"):
        assert part in err


def test_a_stopped_server_stays_stopped_and_its_records_are_told(surefoot: Surefoot, tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    code, out, err = surefoot("run", str(printing(tmp_path)))
    assert code == EXIT_STOPPED, err
    ended = out.split()[1]
    observation = refs(surefoot.state(ended), "observation", "observation")[0]
    open_id = surefoot.submit(rehearsed_scenario(tmp_path / "two", "sleep 600", "workspace: {kind: local}\n"))
    assert eventually(lambda: surefoot.state(open_id)["effects"], 60)
    assert surefoot("down")[0] == EXIT_VERIFIED

    code, out, err = surefoot.ask("ps", "--json")
    assert code == EXIT_VERIFIED
    assert err.count("the embedded server is not running; `surefoot up` starts it") == 1
    listed = {item["id"]: item["status"] for item in map(json.loads, out.splitlines())}
    assert listed[open_id] == "not ended"
    assert listed[ended] == "STOPPED_INCOMPLETE(max_plan_versions)"
    assert next(map(json.loads, surefoot.ask("ps", "--running", "--json")[1].splitlines()))["id"] == open_id
    assert "STOPPED_INCOMPLETE" in surefoot.ask("show", ended)[1]
    assert "it had not ended" in surefoot.ask("show", open_id)[1]
    assert surefoot.ask("output", ended, observation)[1] == PRINTED
    assert surefoot.ask("plans", ended)[0] == EXIT_VERIFIED
    assert surefoot.ask("events", ended)[0] == EXIT_VERIFIED
    assert surefoot.ask("watch", ended)[0] == EXIT_STOPPED
    for arguments in (("watch", open_id), ("cancel", open_id), ("show", "task-none"), ("events", open_id, "--follow")):
        code, out, err = surefoot.ask(*arguments)
        assert code == EXIT_PREREQUISITE, arguments
        assert "surefoot up" in err
    assert supervisor_of(surefoot.settings) is None, "nothing was started"

    restored = tmp_path / "restored"
    shutil.copytree(surefoot.settings.home, restored, ignore=shutil.ignore_patterns("run"))
    out = Surefoot(settings_of(restored)).ask("show", ended)[1]
    (files,) = [line.split()[1] for line in out.splitlines() if line.startswith("files ")]
    assert Path(files).is_relative_to(restored), "its own, not the original's"
    assert (restored / "workspaces") in Path(files).parents
