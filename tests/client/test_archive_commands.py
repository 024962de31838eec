"""What runs leave, on a real embedded server: events, plans and show after Temporal has forgotten, and gc."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleSpec,
)

from client.embedded import worker_of
from schemas.outcome import EXIT_BAD_INPUT, EXIT_CANCELLED, EXIT_FAILED, EXIT_PREREQUISITE, EXIT_STOPPED, EXIT_VERIFIED
from schemas.state import Event
from stores.artifacts import ArtifactStore
from stores.identity import bound_stores
from stores.ledger import Ledger
from stores.settings import Settings
from tests.client.scenario_files import HEAD, SCRIPT, rehearsed_scenario, write_scenario
from tests.support.command_line import Surefoot, command_line
from tests.support.ending import forget, terminate, with_client
from tests.support.events import assert_each_action_has_one_observation
from tests.support.processes import eventually, processes_with
from tests.support.server import settings_of

TWO_VERSIONS = """\
models: {default: rehearsed}
rehearsal: script.yaml
bounds: {max_plan_versions: 2, max_plan_step_iterations: 1}
evaluator: [{kind: file, path: gone}]
"""
REPLAN = """\
  - node: replan
    reply: {why: it did not work, steps: [{title: Write it otherwise, instruction: Try., requirements: [written]}]}
"""
TWO_DAYS = 2 * 24 * 3600
MORE_THAN_A_MONTH = 31 * 24 * 3600

pytestmark = pytest.mark.timeout(400)  # many commands, each of which a busy machine makes wait


@pytest.fixture(scope="module")
def surefoot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surefoot]:
    """A home of its own; the first command that needs a server starts it."""
    with command_line(settings_of(tmp_path_factory.mktemp("home"))) as commands:
        yield commands


def stopped_scenario(folder: Path) -> Path:
    """Write a scenario that stops incomplete after two plan versions."""
    return write_scenario(folder, HEAD + "workspace: {kind: local}\n" + TWO_VERSIONS, SCRIPT % "echo x > y" + REPLAN)


def parsed(out: str) -> list[Any]:
    """Return the values of JSON lines."""
    return [json.loads(line) for line in out.splitlines()]


def ids(out: str) -> list[str]:
    """Return the ids of the events in JSON lines."""
    return [item["id"] for item in parsed(out)]


def test_a_run_that_temporal_has_forgotten_tells_everything_as_before(surefoot: Surefoot, tmp_path: Path) -> None:
    code, out, err = surefoot("run", str(stopped_scenario(tmp_path)))
    assert code == EXIT_STOPPED, err
    task_id = out.split()[1]
    commands = [("events", task_id, "--json"), ("plans", task_id, "--diff"), ("plans", task_id, "--diff", "--json")]
    before = [surefoot.ask(*command) for command in commands]
    assert [code for code, _, _ in before] == [EXIT_VERIFIED] * 3
    events = [Event.model_validate_json(line) for line in before[0][1].splitlines()]
    assert_each_action_has_one_observation(events)
    assert "STOPPED_INCOMPLETE(max_plan_versions)" in events[-1].text
    assert "v1.s1 → v2.s1 Write it → Write it otherwise" in before[1][1]
    assert "replanned because v1.s1 is not done after 1 iteration:" in before[1][1]
    assert parsed(before[2][1])[1]["changes"] == [{"change": "failed", "before": "v1.s1", "after": "v2.s1"}]

    with_client(surefoot.settings, task_id, forget)
    assert [surefoot.ask(*command) for command in commands] == before
    code, out, _ = surefoot.ask("show", task_id, "--events", "3", "--diff")
    assert code == EXIT_VERIFIED
    for part in ("Temporal has forgotten it", "name         small", "evaluator.1", "plan v2, after v1.s1", "+x"):
        assert part in out
    shown = surefoot.state(task_id)
    assert [item["id"] for item in shown["events"]] == [event.id for event in events[-15:]]
    assert task_id in surefoot.ask("ps")[1]

    _lose_the_end(surefoot.settings, shown)
    code, out, err = surefoot.ask("events", task_id, "--json")
    assert code == EXIT_VERIFIED
    assert ids(out) == [event.id for event in events[:-1]]
    assert "chunk 1 is torn" in err
    assert surefoot.ask("show", task_id)[0] == EXIT_VERIFIED


def _lose_the_end(settings: Settings, shown: dict[str, Any]) -> None:
    """Remove the final state, and tear the last line of the archive."""
    ArtifactStore(settings.artifacts_dir).path(shown["row"]["state"]["sha256"]).unlink()
    (chunk,) = settings.archive_dir.glob(f"{shown['id']}.*/*.jsonl")
    chunk.write_bytes(chunk.read_bytes()[:-40])


def test_a_terminated_run_is_called_that_and_leaves_what_it_can(surefoot: Surefoot, tmp_path: Path) -> None:
    token = f"token-{os.getpid()}-{time.monotonic_ns()}"
    task_id = surefoot.submit(rehearsed_scenario(tmp_path, f"sleep 600; : {token}", "workspace: {kind: local}\n"))
    assert eventually(lambda: processes_with(token) != [], 60)
    following = surefoot.start("events", task_id, "--follow", "--kind", "action", "--kind", "state_change", "--json")
    with_client(surefoot.settings, task_id, terminate)
    out, err = following.communicate(timeout=60)
    assert following.returncode == EXIT_VERIFIED, err
    assert {item["kind"] for item in parsed(out)} == {"action", "state_change"}
    listed = parsed(surefoot.ask("ps", "--json")[1])
    assert next(item["status"] for item in listed if item["id"] == task_id) == "FAILED(Terminated)"
    code, out, _ = surefoot.ask("show", task_id)
    assert code == EXIT_VERIFIED
    assert "FAILED(Terminated)" in out
    assert f"action        v1.s1.i1.a1  run sleep 600; : {token}" in out

    with_client(surefoot.settings, task_id, forget)
    code, out, _ = surefoot.ask("show", task_id)
    assert code == EXIT_VERIFIED
    assert "FAILED(Unrecorded)" in out
    assert "propose_action" in out, "the ledger still has its effects"
    code, out, err = surefoot.ask("events", task_id)
    assert (code, out) == (EXIT_PREREQUISITE, "")
    assert "its events are not in the archive" in err
    code, out, err = surefoot.ask("plans", task_id)
    assert (code, out) == (EXIT_VERIFIED, "")
    assert "no plan is known" in err
    assert surefoot.ask("watch", task_id)[0] == EXIT_FAILED
    assert surefoot.ask("events", "task-nobody")[0] == EXIT_BAD_INPUT
    assert eventually(lambda: processes_with(token) == [], 60)


def test_a_task_without_a_plan_says_why_there_is_none(surefoot: Surefoot, tmp_path: Path) -> None:
    models = "workspace: {kind: local}\nmodels: {default: rehearsed}\nrehearsal: script.yaml\n"
    task_id = surefoot.submit(write_scenario(tmp_path, HEAD + models, f"delay_seconds: 10\n{SCRIPT % 'true'}"))
    for flags in ([], ["--diff"], ["--json"]):
        code, out, err = surefoot.ask("plans", task_id, *flags)
        assert (code, out) == (EXIT_VERIFIED, "")
        assert "there is no plan yet" in err
    assert surefoot.ask("cancel", task_id)[0] == EXIT_VERIFIED
    assert surefoot.ask("watch", task_id)[0] == EXIT_CANCELLED
    code, out, err = surefoot.ask("plans", task_id)
    assert (code, out) == (EXIT_VERIFIED, "")
    assert "the task has ended without a plan" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("events", "x", "--kind", "nonsense"), "there is no kind 'nonsense' of events; there are system_prompt, "),
        (("events", "x", "--since", "yesterday"), "--since wants an event's id, as e19, not 'yesterday'"),
        (("gc", "--older-than", "999999d"), "--older-than 999999d: nothing is older than 36500 days; name a shorter"),
        (("gc", "--older-than", "a month"), "--older-than wants days or hours, as 30d or 12h, not 'a month'"),
    ],
)
def test_bad_arguments_are_named(surefoot: Surefoot, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = surefoot.ask(*arguments)
    assert (code, out) == (EXIT_BAD_INPUT, "")
    assert said in err


def age_everything(settings: Settings) -> None:
    """Let every artifact have been put two days ago."""
    for path in settings.artifacts_dir.glob("*/*"):
        os.utime(path, (time.time() - TWO_DAYS,) * 2)


def gc(surefoot: Surefoot, *arguments: str) -> dict[str, Any]:
    """Collect, and return what was removed."""
    code, out, err = surefoot.ask("gc", "--json", *arguments)
    assert code == EXIT_VERIFIED, err
    collected: dict[str, Any] = json.loads(out)
    return collected


def all_but_files(shown: tuple[int, str, str]) -> tuple[int, list[str], str]:
    """Return what `show` said without the line on the task's files, which says whether they are still there."""
    code, out, err = shown
    return code, [line for line in out.splitlines() if not line.startswith("files ")], err


@pytest.mark.slow
def test_gc_removes_what_nothing_needs_and_an_open_run_goes_on_without_its_worker(tmp_path: Path) -> None:
    with command_line(settings_of(tmp_path / "home")) as surefoot:
        settings = surefoot.settings
        (tmp_path / "ended").mkdir()
        code, out, err = surefoot("run", str(stopped_scenario(tmp_path / "ended")))
        assert code == EXIT_STOPPED, err
        ended = out.split()[1]
        token = f"token-{os.getpid()}-{time.monotonic_ns()}"
        big = json.dumps({f"big{number}.txt": f"{number}" * 90_000 for number in range(4)})
        workspace = f"workspace: {{kind: local, files: {big}}}\n"  # its input is a claim on an artifact
        open_task = surefoot.submit(rehearsed_scenario(tmp_path, f"sleep 600; : {token}", workspace))
        assert eventually(lambda: processes_with(token) != [], 60)

        artifacts = ArtifactStore(settings.artifacts_dir)
        garbage = artifacts.put_bytes(b"garbage")
        age_everything(settings)
        young = artifacts.put_bytes(b"young garbage")
        needed = artifacts.names() - {garbage.sha256, young.sha256}
        assert gc(surefoot, "--dry-run")["artifacts"] == 1
        assert garbage.sha256 in artifacts.names()
        collected = gc(surefoot)
        assert (collected["artifacts"], collected["artifacts_young"], collected["problems"]) == (1, 1, [])
        assert artifacts.names() == needed | {young.sha256}
        assert (artifacts.root / "claims.key").exists()
        assert (collected["workspaces"], collected["logs"]) == ([], [])

        with_client(settings, ended, forget)  # claims and frames of its history are garbage now, its record is not
        events = surefoot.ask("events", ended, "--json")
        shown = surefoot.ask("show", ended, "--diff", "--events", "1000")
        collected = gc(surefoot, "--older-than", "0h")
        assert collected["artifacts"] > 0
        assert len(collected["workspaces"]) == 1
        assert collected["workspaces"][0].startswith(ended)
        assert surefoot.ask("events", ended, "--json") == events
        assert all_but_files(surefoot.ask("show", ended, "--diff", "--events", "1000")) == all_but_files(shown)

        worker = worker_of(settings)
        assert worker is not None
        os.kill(worker.process.pid, signal.SIGKILL)  # its successor replays the run from its claims
        assert surefoot("cancel", open_task)[0] == EXIT_VERIFIED
        assert surefoot.ask("watch", open_task)[0] == EXIT_CANCELLED

        assert surefoot("down")[0] == EXIT_VERIFIED
        code, out, err = _without_temporal(surefoot)
        assert (code, out) == (EXIT_PREREQUISITE, "")
        assert "nothing was removed, since Temporal cannot be asked which runs are open" in err


def _without_temporal(surefoot: Surefoot) -> tuple[int, str, str]:
    """Collect where the server that Temporal's configuration names does not answer."""
    process = surefoot.start("gc", "--older-than", "0h", TEMPORAL_ADDRESS="127.0.0.1:1")
    out, err = process.communicate(timeout=100)
    return process.returncode, out, err


def test_gc_keeps_what_a_prepared_input_needs_for_a_month_and_what_a_schedules_input_needs(tmp_path: Path) -> None:
    with command_line(settings_of(tmp_path / "home")) as surefoot:
        settings = surefoot.settings
        assert surefoot("up", "--no-worker")[0] == EXIT_VERIFIED
        bound_stores(settings, Ledger(settings.database_url), ArtifactStore(settings.artifacts_dir))  # as a worker does
        code, out, err = surefoot.ask("scenario", "input", str(rehearsed_scenario(tmp_path, "true")))
        assert code == EXIT_VERIFIED
        assert "keeps them for 30 days" in err
        artifacts = ArtifactStore(settings.artifacts_dir)
        names = artifacts.names()
        assert len(names) == 1
        (settings.archive_dir / "task-x.0123456789ab" / "notes").mkdir(parents=True)  # somebody's own folder
        age_everything(settings)
        assert gc(surefoot)["artifacts"] == 0

        (kept,) = (artifacts.root / "prepared").iterdir()
        os.utime(kept, (time.time() - MORE_THAN_A_MONTH,) * 2)
        with_client(settings, json.loads(out), schedule)
        collected = gc(surefoot)
        assert (collected["artifacts"], kept.exists()) == (0, False)
        with_client(settings, "nightly", unschedule)
        collected = gc(surefoot)
        assert (collected["artifacts"], artifacts.names()) == (1, frozenset())


async def schedule(client: Client, task: Any) -> None:
    """Let a schedule start a task some day."""
    action = ScheduleActionStartWorkflow("AgentTask", task, id="task-nightly", task_queue="surefoot")
    spec = ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(days=300))])
    await client.create_schedule("nightly", Schedule(action=action, spec=spec))
    await listed(client, "nightly", True)


async def unschedule(client: Client, name: str) -> None:
    """Delete a schedule."""
    await client.get_schedule_handle(name).delete()
    await listed(client, name, False)


async def listed(client: Client, name: str, wanted: bool) -> None:
    """Wait until the server's list has the schedule, or has it no more."""
    async with asyncio.timeout(100):
        while True:
            if (name in [item.id async for item in await client.list_schedules()]) is wanted:
                return
            await asyncio.sleep(0.1)


@pytest.mark.slow
def test_gc_keeps_all_artifacts_where_a_run_may_go_on_at_another_server(tmp_path: Path) -> None:
    with command_line(settings_of(tmp_path / "home")) as surefoot:
        settings = surefoot.settings
        token = f"token-{os.getpid()}-{time.monotonic_ns()}"
        more = "workspace: {kind: local}\n"
        task_id = surefoot.submit(rehearsed_scenario(tmp_path, f"sleep 600; : {token}", more))
        assert eventually(lambda: processes_with(token) != [], 60)
        assert surefoot("down")[0] == EXIT_VERIFIED
        for path in settings.home.glob("temporal.db*"):
            path.rename(tmp_path / path.name)  # the run lives on in this file
        assert surefoot("up", "--no-worker")[0] == EXIT_VERIFIED
        age_everything(settings)
        before = ArtifactStore(settings.artifacts_dir).names()
        collected = gc(surefoot, "--older-than", "1h")
        assert task_id in collected["held_back"]
        assert (collected["artifacts"], collected["workspaces"]) == (0, [])
        assert ArtifactStore(settings.artifacts_dir).names() == before


def test_a_home_that_lost_the_servers_file_still_tells_what_its_tasks_did(tmp_path: Path) -> None:
    with command_line(settings_of(tmp_path / "home")) as surefoot:
        code, out, err = surefoot("run", str(stopped_scenario(tmp_path)))
        assert code == EXIT_STOPPED, err
        task_id = out.split()[1]
        before = surefoot.ask("events", task_id, "--json")
        assert surefoot("down")[0] == EXIT_VERIFIED
        for path in surefoot.settings.home.glob("temporal.db*"):
            path.unlink()
        code, out, err = surefoot("events", task_id, "--json")
        assert (code, out) == before[:2], err
