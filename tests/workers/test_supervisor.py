"""The supervisor keeps one server a home running, whatever dies."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from client.embedded import child_environment, ensure_running, server_of, stop, supervisor_of, worker_of
from client.problems import PrerequisiteError
from stores.running import ServerRecord, is_alive
from stores.settings import Settings
from stores.temporal import connect
from tests.support.processes import eventually, processes_with
from tests.support.server import settings_of

START = "from client.embedded import ensure_running; from stores.settings import load_settings; "
START += "print(ensure_running(load_settings(), False).model_dump_json())"


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """Settings of a home of its own, with nothing left running at the end."""
    found = settings_of(tmp_path)
    yield found
    stop(found)
    assert eventually(lambda: servers_of(found) == [])


def servers_of(settings: Settings) -> list[int]:
    return processes_with(str(settings.temporal_db))


def test_two_that_start_at_the_same_time_get_the_same_single_server(settings: Settings) -> None:
    command = [sys.executable, "-c", START]
    both = [subprocess.Popen(command, env=child_environment(settings), stdout=subprocess.PIPE) for _ in range(2)]
    said = [process.communicate(timeout=90)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    records = [ServerRecord.model_validate_json(text) for text in said]
    assert records[0] == records[1]
    assert servers_of(settings) == [records[0].process.pid]


def test_a_killed_server_is_back_on_its_address_and_a_connected_client_carries_on(settings: Settings) -> None:
    before = ensure_running(settings, worker=False)

    async def work() -> None:
        client = await connect(settings)
        os.kill(before.process.pid, signal.SIGKILL)
        assert await asyncio.to_thread(eventually, lambda: server_of(settings) not in (None, before))
        await client.count_workflows()

    asyncio.run(work())
    after = server_of(settings)
    assert after is not None
    assert after.address == before.address
    assert servers_of(settings) == [after.process.pid]


def test_a_server_left_behind_by_a_killed_supervisor_is_replaced_on_its_address(settings: Settings) -> None:
    before = ensure_running(settings, worker=False)
    supervisor = supervisor_of(settings)
    assert supervisor is not None
    os.kill(supervisor.process.pid, signal.SIGKILL)
    assert eventually(lambda: supervisor_of(settings) is None)
    assert is_alive(before.process)
    after = ensure_running(settings, worker=False)
    assert after.address == before.address
    assert servers_of(settings) == [after.process.pid]


def test_a_server_without_a_supervisor_can_be_stopped(settings: Settings) -> None:
    before = ensure_running(settings, worker=False)
    supervisor = supervisor_of(settings)
    assert supervisor is not None
    os.kill(supervisor.process.pid, signal.SIGKILL)
    assert eventually(lambda: supervisor_of(settings) is None)
    assert stop(settings)
    assert not is_alive(before.process)
    assert server_of(settings) is None


@pytest.mark.slow
def test_a_worker_is_started_on_request_and_again_when_it_dies_and_stops_with_the_rest(settings: Settings) -> None:
    ensure_running(settings, worker=False)
    assert worker_of(settings) is None
    ensure_running(settings, worker=True)
    first = worker_of(settings)
    assert first is not None
    os.kill(first.process.pid, signal.SIGKILL)
    assert eventually(lambda: worker_of(settings) not in (None, first), 60)
    second = worker_of(settings)
    assert second is not None
    assert stop(settings)
    assert not is_alive(second.process)
    assert worker_of(settings) is None
    assert not stop(settings)


def test_a_second_supervisor_of_the_same_home_leaves_at_once(settings: Settings) -> None:
    before = ensure_running(settings, worker=False)
    command = [sys.executable, "-m", "workers.supervisor"]
    second = subprocess.run(command, env=child_environment(settings), capture_output=True, timeout=60, check=False)
    assert second.returncode == 0
    assert b"running already" in second.stderr
    assert server_of(settings) == before


def test_a_program_that_is_no_server_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    program = tmp_path / "temporal"
    program.write_text("#!/bin/sh\necho the disk is on fire >&2\nexit 1\n")
    program.chmod(0o755)
    broken = settings_of(tmp_path / "home", temporal_cli=program)
    began = time.monotonic()
    with pytest.raises(PrerequisiteError) as caught:
        ensure_running(broken, worker=False)
    assert "the supervisor ended with code 6" in str(caught.value)
    assert "the disk is on fire" in str(caught.value)
    assert time.monotonic() - began < 60
    assert supervisor_of(broken) is None
