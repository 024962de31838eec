"""Runs that ended from outside, and histories that gc cannot read, on a real embedded server."""

import asyncio
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from schemas.contract import TASK_WORKFLOW
from schemas.outcome import EXIT_PREREQUISITE, EXIT_VERIFIED
from schemas.state import TaskInput
from stores.artifacts import ArtifactStore
from stores.identity import bound_stores
from stores.ledger import Ledger
from stores.settings import Settings
from stores.temporal import data_converter
from tests.client.scenario_files import rehearsed_scenario
from tests.support.codec import ENCODING, Encrypting
from tests.support.command_line import Surefoot, command_line
from tests.support.ending import forget, terminate, with_client
from tests.support.processes import eventually, processes_with
from tests.support.scripted import World, spec
from tests.support.server import DevServer, client_of, running_server, settings_of
from workflows.agent_task import AgentTask

TWO_DAYS = 2 * 24 * 3600

pytestmark = pytest.mark.timeout(400)  # many commands, each of which a busy machine makes wait


@pytest.fixture(scope="module")
def surefoot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surefoot]:
    """A home of its own; the first command that needs a server starts it."""
    with command_line(settings_of(tmp_path_factory.mktemp("home"))) as commands:
        yield commands


def sleeping(surefoot: Surefoot, folder: Path) -> str:
    """Submit a task, and return its id once its command runs."""
    token = f"token-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    task_id = surefoot.submit(rehearsed_scenario(folder, f"sleep 600; : {token}", "workspace: {kind: local}\n"))
    assert eventually(lambda: processes_with(token) != [], 60)
    return task_id


def age_everything(settings: Settings) -> None:
    """Let every artifact have been put two days ago."""
    for path in settings.artifacts_dir.glob("*/*"):
        os.utime(path, (time.time() - TWO_DAYS,) * 2)


@pytest.mark.slow
def test_gc_records_a_terminated_run_which_then_tells_everything_for_good(surefoot: Surefoot, tmp_path: Path) -> None:
    task_id = sleeping(surefoot, tmp_path / "a")
    with_client(surefoot.settings, task_id, terminate)
    before = surefoot.ask("events", task_id)[1]
    assert "run sleep 600" in before
    assert surefoot.ask("gc", "--dry-run")[0] == EXIT_VERIFIED
    assert surefoot.state(task_id)["events"][-1]["kind"] == "action", "a dry run writes nothing"
    code, out, err = surefoot.ask("gc")
    assert (code, err) == (EXIT_VERIFIED, "")
    assert f"recorded     1 task that had ended without a record\n  {task_id}" in out
    assert "recorded" not in surefoot.ask("gc")[1]

    with_client(surefoot.settings, task_id, forget)
    age_everything(surefoot.settings)
    assert surefoot.ask("gc")[0] == EXIT_VERIFIED
    code, out, err = surefoot.ask("events", task_id)
    assert (code, err) == (EXIT_VERIFIED, "")
    *events, end = out.splitlines()
    assert events == before.splitlines()
    assert end.endswith("by hand")
    assert "terminated by" in end
    code, out, _ = surefoot.ask("show", task_id)
    for part in ("FAILED(Terminated)", "terminated by", "Write out.txt.", "run sleep 600", "name         small"):
        assert part in out, "no artifact of it was removed"
    assert "FAILED(Terminated)" in surefoot.ask("ps")[1]


@pytest.mark.slow
def test_without_a_worker_its_history_is_kept_and_the_next_worker_records_it(
    surefoot: Surefoot, tmp_path: Path
) -> None:
    forgotten, remembered = (sleeping(surefoot, tmp_path / name) for name in "ab")
    assert surefoot("down")[0] == EXIT_VERIFIED
    assert surefoot("up", "--no-worker")[0] == EXIT_VERIFIED
    for task_id in (forgotten, remembered):
        with_client(surefoot.settings, task_id, terminate)
    err = surefoot.ask("events", forgotten)[2]
    assert "no worker answers for it. Temporal still has its history" in err
    assert surefoot.ask("gc")[0] == EXIT_VERIFIED
    (kept,) = surefoot.settings.archive_dir.glob(f"{forgotten}.*/history.*.json")
    assert f"its history is kept in {kept}" in surefoot.ask("events", forgotten)[2]

    with_client(surefoot.settings, forgotten, forget)
    age_everything(surefoot.settings)
    artifacts = ArtifactStore(surefoot.settings.artifacts_dir)
    garbage = artifacts.put_bytes(b"garbage")
    age_everything(surefoot.settings)
    before = artifacts.names()
    assert surefoot.ask("gc", "--older-than", "0h")[0] == EXIT_VERIFIED
    assert artifacts.names() == before - {garbage.sha256}, "what the history needs that is kept"
    for command, expected in (("events", EXIT_PREREQUISITE), ("show", EXIT_VERIFIED)):  # no event is left to print
        code, _, err = surefoot.ask(command, forgotten)
        assert code == expected
        assert f"Temporal's history of it is kept in {kept}" in err

    assert surefoot("up")[0] == EXIT_VERIFIED
    rows = surefoot.settings.archive_dir
    assert eventually(lambda: list(rows.glob(f"{remembered}.*/0001.jsonl")) != [], 60), "the worker sweeps by itself"
    with_client(surefoot.settings, remembered, forget)
    assert "run sleep 600" in surefoot.ask("events", remembered)[1]


def test_gc_removes_nothing_where_a_codec_hides_what_a_history_refers_to(tmp_path: Path) -> None:
    with running_server(tmp_path / "home") as server:
        task_id = asyncio.run(encrypted_task(server))
        settings = server.settings
        artifacts = ArtifactStore(settings.artifacts_dir)
        bound_stores(settings, Ledger(settings.database_url), artifacts)  # as a worker does
        artifacts.put_bytes(b"garbage, perhaps")
        age_everything(settings)
        before = artifacts.names()
        commands = Surefoot(settings)
        for flags in ((), ("--dry-run",)):
            code, out, err = commands.ask("gc", "--older-than", "0h", *flags)
            assert (code, out) == (EXIT_PREREQUISITE, "")
            assert "nothing was removed" in err
            assert task_id in err
            assert f"in event 1 a payload of the encoding '{ENCODING}'" in err
            assert f"temporal workflow delete --workflow-id {task_id}" in err
        assert artifacts.names() == before


async def encrypted_task(server: DevServer) -> str:
    """Run a task whose every payload went through the codec, and return its id."""
    plain = await client_of(server.settings)
    converter = data_converter(ArtifactStore(server.settings.artifacts_dir), Encrypting())
    client = await Client.connect(plain.service_client.config.target_host, data_converter=converter)
    queue, task_id = f"q-{uuid.uuid4().hex[:12]}", f"task-{uuid.uuid4().hex[:12]}"
    world = World()
    async with Worker(client, task_queue=queue, workflows=[AgentTask], activities=world.registered()):
        task = TaskInput(spec=spec(queue))
        await client.execute_workflow(TASK_WORKFLOW, task, id=task_id, task_queue=queue)
    return task_id
