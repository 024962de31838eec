"""The commands on a real embedded server with a real worker: what they start, show, tell and end with."""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from client.embedded import server_of, supervisor_of, worker_of
from schemas.outcome import (
    EXIT_BAD_INPUT,
    EXIT_CANCELLED,
    EXIT_FAILED,
    EXIT_NOT_VERIFIED,
    EXIT_STOPPED,
    EXIT_VERIFIED,
)
from stores.running import is_alive
from tests.client.scenario_files import HEAD, SCRIPT, rehearsed_scenario, write_scenario
from tests.support.command_line import Surefoot, command_line
from tests.support.processes import eventually, processes_with
from tests.support.server import settings_of

LOCAL = "workspace: {kind: local}\nbounds: {max_plan_versions: 1, max_plan_step_iterations: 1}\n"
AWAY_SECONDS = 12  # long enough for Temporal's core to complain of the server
SCENARIOS = Path(__file__).parents[2] / "scenarios"


@pytest.fixture(scope="module")
def surefoot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surefoot]:
    """A home of its own; the first command that needs a server starts it."""
    with command_line(settings_of(tmp_path_factory.mktemp("home"))) as commands:
        yield commands


def completed(surefoot: Surefoot, command: str, begun: str) -> str:
    """Return what a shell is offered for a task's id."""
    words = {"_SUREFOOT_COMPLETE": "complete_bash", "COMP_WORDS": f"surefoot {command} {begun}", "COMP_CWORD": "2"}
    out, err = surefoot.start(**words).communicate(timeout=60)
    assert err == ""
    return out


def sleeping(folder: Path, token: str) -> Path:
    """Write a scenario whose only command runs for ten minutes."""
    return rehearsed_scenario(folder, f"echo begun; sleep 600; : {token}", "workspace: {kind: local}\n")


def demo_scenario(folder: Path) -> Path:
    """Copy the demo's scenario, with a model that does not think and a soak test that does not take long."""
    shutil.copytree(SCENARIOS, folder, dirs_exist_ok=True)
    script, soak = folder / "fix-failing-test.rehearsal.yaml", folder / "fix-failing-test" / "soak.py"
    script.write_text(script.read_text().replace("delay_seconds: 0.15", "delay_seconds: 0"))
    soak.write_text(soak.read_text().replace("else 6.0", "else 0.5"))
    return folder / "fix-failing-test.yaml"


def test_the_first_scenario_runs_from_nothing_to_a_verified_end(surefoot: Surefoot) -> None:
    code, out, err = surefoot("run", str(SCENARIOS / "hello-file.yaml"))
    assert code == EXIT_VERIFIED, err
    assert "FINISHED, verified by the evaluator" in out
    assert "REHEARSED" in err
    assert "REHEARSED" in out
    task_id = out.split()[1]
    _, listed, _ = surefoot("ps", "--json")
    assert {"id": task_id, "status": "FINISHED"}.items() <= json.loads(listed.splitlines()[0]).items()
    code, shown, _ = surefoot("show", task_id, "--diff")
    assert code == EXIT_VERIFIED
    for part in ("plan v1", "v1.s1 Write the greeting", "propose_action", "+Hello, Surefoot!", "greeting-written"):
        assert part in shown
    assert re.search(r"^ended        20\d\d-", shown, re.MULTILINE)
    assert task_id in completed(surefoot, "show", "task-hello")
    assert task_id not in completed(surefoot, "cancel", "task-hello"), "it has ended"
    code, out, _ = surefoot("watch", task_id, "--json")
    assert code == EXIT_VERIFIED
    end = json.loads(out.splitlines()[-1])
    assert (end["type"], end["label"], end["exit_code"]) == ("end", "FINISHED", 0)


@pytest.mark.parametrize(
    ("command", "more", "expected", "label"),
    [
        ("touch out.txt", "evaluator: [{kind: file, path: gone}]\n", EXIT_NOT_VERIFIED, "FINISHED"),
        ("true", "", EXIT_STOPPED, "STOPPED_INCOMPLETE(max_plan_versions)"),
        ("true", "limits: {model_calls: 1}\n", EXIT_STOPPED, "STOPPED_INCOMPLETE(budget_model_calls)"),
    ],
)
def test_the_exit_code_tells_how_a_task_ended(
    surefoot: Surefoot, tmp_path: Path, command: str, more: str, expected: int, label: str
) -> None:
    code, out, err = surefoot("run", str(rehearsed_scenario(tmp_path, command, LOCAL + more)), "--json")
    end = json.loads(out.splitlines()[-1])
    assert (code, end["label"], end["exit_code"]) == (expected, label, expected), err
    assert "workspace kind local" in err


def test_a_requirement_that_proves_nothing_fails_the_task(surefoot: Surefoot, tmp_path: Path) -> None:
    text = HEAD.replace("text: out", "before: must_fail\n    text: out")
    text += "models: {default: rehearsed}\nrehearsal: script.yaml\n"
    text += "workspace: {kind: local, files: {out.txt: there already}}\n"
    code, out, _ = surefoot("run", str(write_scenario(tmp_path, text, SCRIPT % "true")))
    assert code == EXIT_FAILED
    assert "FAILED(RequirementAlreadyMet)" in out


def test_a_rehearsal_that_lacks_a_reply_fails_the_task_at_once_and_names_what_to_write(
    surefoot: Surefoot, tmp_path: Path
) -> None:
    path = rehearsed_scenario(tmp_path, "true", "workspace: {kind: local}\nbounds: {max_plan_step_iterations: 1}\n")
    code, out, err = surefoot("run", str(path))
    assert code == EXIT_FAILED, out + err
    task_id = out.split()[1]
    said = f"replan: {tmp_path}/script.yaml: no reply of `node: replan`; what was asked: `surefoot output"
    assert "FAILED(RehearsalIncomplete)" in out
    assert said in out
    asked = re.search(rf"`surefoot (output {task_id} sha256:[0-9a-f]{{64}})`", out)
    assert asked is not None
    assert out.count("REPLAN") == 1


def test_a_task_is_paused_resumed_steered_and_cancelled_in_the_middle_of_a_command(
    surefoot: Surefoot, tmp_path: Path
) -> None:
    token = f"token-{os.getpid()}-{time.monotonic_ns()}"
    task_id = surefoot.submit(sleeping(tmp_path, token))
    assert task_id in completed(surefoot, "pause", "")
    watching = surefoot.start("watch", task_id)
    assert eventually(lambda: processes_with(token) != [])
    code, out, _ = surefoot("pause", task_id, "wait a moment", "--by", "ann", "--json")
    told = json.loads(out)
    assert (code, told["accepted"], told["answer"]) == (EXIT_VERIFIED, True, "paused")
    assert eventually(lambda: processes_with(token) == [])
    assert surefoot.state(task_id)["state"]["paused_by"] == "ann: wait a moment"
    code, out, _ = surefoot("pause", task_id)
    assert code == EXIT_BAD_INPUT
    assert "refused: already paused" in out
    assert surefoot("steer", task_id, "be careful", "--by", "bob")[1] == f"{task_id}: the next decision sees it\n"
    assert surefoot.state(task_id)["state"]["steering"][0]["text"] == "be careful"
    assert surefoot("resume", task_id)[0] == EXIT_VERIFIED
    code, out, _ = surefoot("cancel", task_id, "enough")
    assert code == EXIT_VERIFIED
    assert "the task will end as CANCELLED" in out
    out, _ = watching.communicate(timeout=60)
    assert watching.returncode == EXIT_CANCELLED
    assert "! paused by ann: wait a moment" in out
    assert "outcome      CANCELLED" in out
    code, _, err = surefoot("resume", task_id)
    assert code == EXIT_BAD_INPUT
    assert "has ended as CANCELLED; nothing was sent" in err
    assert processes_with(token) == []


def test_ctrl_c_detaches_and_the_task_goes_on(surefoot: Surefoot, tmp_path: Path) -> None:
    token = f"token-{os.getpid()}-{time.monotonic_ns()}"
    running = surefoot.start("run", str(sleeping(tmp_path, token)))
    assert eventually(lambda: processes_with(token) != [], 60)
    os.kill(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 130
    task_id = out.split()[1]
    assert f"detached; the task goes on. surefoot watch {task_id}" in err
    assert processes_with(token) != []
    assert surefoot("cancel", task_id)[0] == EXIT_VERIFIED
    assert surefoot("watch", task_id)[0] == EXIT_CANCELLED


def test_watching_carries_on_over_the_death_of_the_server(surefoot: Surefoot, tmp_path: Path) -> None:
    token = f"token-{os.getpid()}-{time.monotonic_ns()}"
    task_id = surefoot.submit(sleeping(tmp_path, token))
    watching = surefoot.start("watch", task_id, "--json")
    assert eventually(lambda: processes_with(token) != [], 60)
    server, supervisor = server_of(surefoot.settings), supervisor_of(surefoot.settings)
    assert server is not None
    assert supervisor is not None
    os.kill(supervisor.process.pid, signal.SIGSTOP)
    os.kill(server.process.pid, signal.SIGKILL)
    time.sleep(AWAY_SECONDS)
    os.kill(supervisor.process.pid, signal.SIGCONT)
    assert eventually(lambda: server_of(surefoot.settings) not in (None, server))
    assert surefoot("cancel", task_id)[0] == EXIT_VERIFIED
    out, err = watching.communicate(timeout=60)
    assert watching.returncode == EXIT_CANCELLED, err
    assert [json.loads(line) for line in out.splitlines()][-1]["label"] == "CANCELLED"


@pytest.mark.parametrize("killed", [("supervisor",), ("supervisor", "server")], ids="+".join)
def test_down_ends_the_worker_that_a_killed_supervisor_left(tmp_path: Path, killed: tuple[str, ...]) -> None:
    surefoot = Surefoot(settings_of(tmp_path))
    code, out, _ = surefoot("up", "--json")
    assert code == EXIT_VERIFIED
    started = json.loads(out)
    supervisor, server = supervisor_of(surefoot.settings), server_of(surefoot.settings)
    worker = worker_of(surefoot.settings)
    assert supervisor
    assert server
    assert worker
    assert (started["address"], started["worker"]) == (server.address, worker.process.pid)
    assert started["queue"] == surefoot.settings.queue_prefix
    try:
        for name, record in (("supervisor", supervisor), ("server", server)):
            if name in killed:
                os.kill(record.process.pid, signal.SIGKILL)
                assert eventually(lambda process=record.process: not is_alive(process))  # type: ignore[misc]
        code, out, err = surefoot("down")
        assert (code, out.split(";")[0]) == (EXIT_VERIFIED, "stopped"), err
        assert not is_alive(server.process)
        assert not is_alive(worker.process)
        assert surefoot("down")[1] == "nothing was running\n"
    finally:
        for process in (server.process, worker.process):
            if is_alive(process):
                os.kill(process.pid, signal.SIGKILL)


def test_the_scenario_of_the_demo_ends_verified(surefoot: Surefoot, tmp_path: Path) -> None:
    code, out, err = surefoot("run", str(demo_scenario(tmp_path)))
    assert code == EXIT_VERIFIED, out + err
    assert "+    share, odd = divmod(total, people)" in surefoot("show", out.split()[1], "--diff")[1]


@pytest.mark.slow
def test_a_bug_that_the_script_does_not_know_ends_unfinished(surefoot: Surefoot, tmp_path: Path) -> None:
    path = demo_scenario(tmp_path)
    program = tmp_path / "fix-failing-test" / "splitting.py"
    program.write_text(program.read_text().replace("total // people", "total // people + 1"))
    code, out, err = surefoot("run", str(path))
    assert code == EXIT_FAILED, out + err
    assert "FAILED(RehearsalIncomplete)" in out


def test_an_unknown_task_is_bad_input_for_every_command(surefoot: Surefoot) -> None:
    for arguments in (["show", "task-none"], ["watch", "task-none"], ["cancel", "task-none"]):
        code, _, err = surefoot(*arguments)
        assert code == EXIT_BAD_INPUT
        assert "no task task-none; `surefoot ps` lists the tasks" in err


@pytest.mark.slow
def test_a_task_that_a_new_server_does_not_know_is_known_from_the_ledger(surefoot: Surefoot, tmp_path: Path) -> None:
    path = rehearsed_scenario(tmp_path, "touch out.txt", LOCAL)
    code, out, err = surefoot("run", str(path))
    assert code == EXIT_VERIFIED, err
    task_id = out.split()[1]
    assert surefoot("down")[1].startswith("stopped")
    for file in surefoot.settings.home.glob("temporal.db*"):
        file.unlink()
    surefoot("up", "--no-worker")
    shown = surefoot.state(task_id)
    assert (shown["label"], shown["exit_code"]) == ("FINISHED", 0)
    assert "Temporal has forgotten it" in shown["note"]
    assert shown["state"]["plans"][0]["steps"][0]["title"] == "Write it"
    assert surefoot("watch", task_id)[0] == EXIT_VERIFIED
    assert task_id in surefoot("ps")[1]
    assert surefoot("down")[0] == EXIT_VERIFIED


def scenario_copy(folder: Path, name: str) -> Path:
    """Copy a scenario, with a model that does not think."""
    shutil.copytree(SCENARIOS, folder, dirs_exist_ok=True)
    script = folder / f"{name}.rehearsal.yaml"
    script.write_text(script.read_text().replace("delay_seconds: 0.1", "delay_seconds: 0"))
    return folder / f"{name}.yaml"


def test_a_report_from_messy_files_is_right_whatever_stands_in_them(surefoot: Surefoot, tmp_path: Path) -> None:
    """The script knows no figure: with other files it reports other figures, and the evaluator still agrees."""
    path = scenario_copy(tmp_path, "csv-report")
    north = tmp_path / "csv-report" / "sales" / "north.csv"
    north.write_text(north.read_text() + "N-2000,2026-10-31,Lamp,1000000.01\nN-2001,2026-10-31,Lamp\n")
    code, out, err = surefoot("run", str(path))
    assert code == EXIT_VERIFIED, out + err
    report = json.loads((Path(_folder(out)) / "report.json").read_text())
    assert float(report["branches"]["north"]["total"]) > 1_000_000
    assert report["left_out"]["broken"] == 4


@pytest.mark.slow
def test_a_file_that_the_script_does_not_understand_ends_unfinished(surefoot: Surefoot, tmp_path: Path) -> None:
    path = scenario_copy(tmp_path, "csv-report")
    (tmp_path / "csv-report" / "sales" / "centre.csv").write_text(
        "order|date|article|amount\nC1|2026-10-01|Rug|10.00\n"
    )
    code, out, err = surefoot("run", str(path))
    assert code == EXIT_FAILED, out + err
    assert "FAILED(RehearsalIncomplete)" in out


def test_a_plan_that_cannot_work_is_found_out_and_replaced_by_another_strategy(
    surefoot: Surefoot, tmp_path: Path
) -> None:
    code, out, err = surefoot("run", str(scenario_copy(tmp_path, "stock-count")))
    assert code == EXIT_VERIFIED, out + err
    task = surefoot.state(out.split()[1])
    assert [effect["name"] for effect in task["effects"] if effect["kind"] == "action"] == [
        *("run", "run"),  # ask the service, and look whether there is a network at all
        *("read_file", "run", "write_file", "run"),
    ]
    plans = task["state"]["plans"]
    assert [[step["title"] for step in plan["steps"]] for plan in plans] == [
        ["Ask the service"],
        ["Rebuild the stock from the journal"],
    ]
    assert "http://stock.internal:8090/pieces does not answer: <urlopen error" in plans[1]["why"], "as it was seen"


@pytest.mark.slow
def test_where_the_other_strategy_has_nothing_to_work_on_the_task_ends_unfinished(
    surefoot: Surefoot, tmp_path: Path
) -> None:
    path = scenario_copy(tmp_path, "stock-count")
    shutil.rmtree(tmp_path / "stock-count" / "journal")
    code, out, err = surefoot("run", str(path))
    assert code == EXIT_FAILED, out + err


def _folder(out: str) -> str:
    return next(line.split()[1] for line in out.splitlines() if line.startswith("files "))
