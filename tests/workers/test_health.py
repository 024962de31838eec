"""The probes of a worker tell the truth, whatever is broken: server, ledger, event loop."""

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from schemas.effects import EffectState
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from tests.proof.bench import Handle, happened, rows_of, serving_home, start, states, with_client
from tests.support.probing import is_ready, probe
from tests.support.processes import eventually
from tests.support.server import DevServer, settings_of
from tests.support.tasks import (
    WorkerProcess,
    commands,
    plan,
    rehearsed_choice,
    reply,
    task_spec,
    verdict,
    worker,
)
from workers.health import Health, HealthAddressUnusable, checks_of, served

PATHS = ("/ready", "/live")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with serving_home(tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture
def probed(home: DevServer) -> Iterator[WorkerProcess]:
    with worker(home.settings, SUREFOOT_HEALTH__ADDRESS="127.0.0.1:0") as running:
        yield running


def test_a_worker_is_ready_while_the_server_sees_it_poll(home: DevServer, probed: WorkerProcess) -> None:
    address = probed.said["health"]
    assert eventually(lambda: is_ready(address))
    home.kill()
    status, problems = probe(address, "/ready")
    assert status == 503
    assert any("Temporal server" in problem for problem in problems), problems
    assert probe(address, "/live") == (200, [])
    home.start()
    assert eventually(lambda: is_ready(address), 90)


def test_a_worker_that_stops_is_not_ready_while_it_interrupts_and_records_its_command(
    home: DevServer, probed: WorkerProcess
) -> None:
    settings, address = home.settings, probed.said["health"]
    script = [
        reply("plan", plan("Wait")),
        reply("is_step_done", verdict(False)),
        reply("propose_action", commands("touch begun; sleep 600")),
    ]
    choice = rehearsed_choice(ArtifactStore(settings.artifacts_dir), script)

    async def go(client: Client) -> Handle:
        handle = await start(client, settings, task_spec(settings, choice))
        await happened(lambda: list(settings.workspaces_dir.glob("*/files/begun")))
        return handle

    handle = with_client(settings, go)
    assert is_ready(address)
    probed.send(signal.SIGTERM)
    assert eventually(lambda: probe(address, "/ready") == (503, ["the worker is stopping"]))
    assert probe(address, "/live") == (200, [])
    assert probed.wait() == 0
    assert handle.first_execution_run_id is not None
    assert EffectState.INTENT not in states(rows_of(settings, handle.first_execution_run_id), "run")


def test_without_an_address_nothing_listens(home: DevServer) -> None:
    with worker(home.settings) as running:
        assert "health" not in running.said


def test_an_address_that_is_taken_ends_the_start_with_what_to_do(home: DevServer) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-m", "workers.main", "--without-litellm"],
            env={"SUREFOOT_HOME": str(home.settings.home), "SUREFOOT_HEALTH__ADDRESS": address},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 6
    assert f"health.address {address} cannot be used: Address already in use. Set another one" in done.stderr


def test_a_port_beyond_all_ports_is_told() -> None:
    async def go() -> None:
        with pytest.raises(HealthAddressUnusable, match=r"127\.0\.0\.1:99999"):
            async with served(Health([]), "127.0.0.1:99999"):
                pass

    asyncio.run(go())


def test_a_ledger_that_does_not_answer_is_a_reason(tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "home")
    ledger = Ledger(settings.database_url)
    database = settings.home / "surefoot.db"
    for path in settings.home.glob("surefoot.db*"):
        path.unlink()
    database.mkdir()

    async def go() -> tuple[int, list[str]]:
        client = await Client.connect("127.0.0.1:1", lazy=True)
        async with served(Health(checks_of(client, [], ledger)), "127.0.0.1:0") as address:
            return await asyncio.to_thread(probe, address, "/ready")

    status, problems = asyncio.run(go())
    assert status == 503
    assert problems[0].startswith("the ledger's database")


def test_a_check_that_hangs_is_asked_once_and_is_a_reason() -> None:
    asked: list[int] = []

    async def hangs() -> str | None:
        """the wall"""
        asked.append(1)
        await asyncio.Event().wait()
        return None

    async def go() -> None:
        watched = Health([hangs], check_seconds=0.2)
        for _ in range(3):
            assert await asyncio.to_thread(watched.ready) == ["no answer within 0.2 s from the wall"]

    asyncio.run(go())
    assert asked == [1]


def test_a_stuck_event_loop_is_told_by_both_probes() -> None:
    answers: list[tuple[int, list[str]]] = []

    async def go() -> None:
        async with served(Health([], check_seconds=0.1, stuck_seconds=1.0), "127.0.0.1:0") as address:
            assert await asyncio.to_thread(probe, address, "/live") == (200, [])
            asking = threading.Thread(target=lambda: answers.extend(probe(address, path) for path in PATHS))
            asking.start()
            asking.join()  # holds the loop, which is what is tested

    asyncio.run(go())
    assert [status for status, _ in answers] == [503, 503]
    assert answers[0][1] == ["the event loop does not answer"]
    assert answers[1][1][0].startswith("the event loop has not turned for")
