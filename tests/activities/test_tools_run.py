"""The run tool: what a command gives back, and what it can reach, in both kinds of workspace."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.actions import ObservationStatus
from schemas.workspace import WorkspaceKind
from tests.activities.workspace_bench import WorkspaceBench
from tests.support.processes import processes_with, stubborn_tree


@pytest.fixture(scope="module", params=list(WorkspaceKind))
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> WorkspaceBench:
    return WorkspaceBench(tmp_path_factory.mktemp("run"), request.param, memory_mb=256)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> WorkspaceBench:
    return WorkspaceBench(tmp_path_factory.mktemp("sandbox"), WorkspaceKind.SANDBOX, memory_mb=256, file_mb=1)


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_output_and_errors_come_in_the_order_written_with_the_exit_code(bench: WorkspaceBench) -> None:
    seen = bench.act("run", command="echo one; echo two >&2; echo three; exit 7")
    assert (seen.status, seen.exit_code) == (ObservationStatus.FAILED, 7)
    assert bench.shown(seen) == "one\ntwo\nthree\n"
    assert seen.output is None
    assert seen.summary == "exit code 7: …three"


def test_a_command_that_is_killed_by_a_signal_says_so_like_a_shell(bench: WorkspaceBench) -> None:
    assert bench.act("run", command="kill -9 $$").exit_code == 137


def test_python_works(bench: WorkspaceBench) -> None:
    seen = bench.act("run", command="python3 -c 'import json, ssl; print(6 * 7)'; pwd")
    assert bench.shown(seen).startswith("42\n")


def test_three_megabytes_of_output_are_kept_and_the_excerpt_is_short(bench: WorkspaceBench) -> None:
    seen = bench.act("run", command="echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert len(bench.text(seen.output)) == 3_000_000 + len("first\n\nlast\n")
    excerpt = bench.shown(seen)
    assert len(excerpt) <= 6000
    assert excerpt.startswith("first\n")
    assert excerpt.endswith("last\n")


def test_what_is_beyond_sixteen_megabytes_is_cut_and_said_so(bench: WorkspaceBench) -> None:
    seen = bench.act("run", command="head -c 20000000 /dev/zero | tr '\\0' x; echo the end")
    whole = bench.text(seen.output)
    assert len(whole) < 16 * 1024 * 1024 + 100
    assert "bytes were not kept" in whole
    assert whole.endswith("the end\n")


def test_bytes_that_are_no_text_and_control_characters_do_no_harm(bench: WorkspaceBench) -> None:
    seen = bench.act("run", command="printf 'a\\000b\\377c\\033[31m\\n'")
    assert bench.shown(seen) == "a␀b\ufffdc\x1b[31m\n"
    assert "\x1b" not in seen.summary


def test_a_command_has_no_input(bench: WorkspaceBench) -> None:
    assert bench.shown(bench.act("run", command="cat; echo end")) == "end\n"


def test_at_its_time_limit_a_command_ends_with_all_that_it_has_started(bench: WorkspaceBench) -> None:
    token = f"token-limit-{bench.workspace.kind}"
    seen = bench.act("run", timeout_seconds=2, command=stubborn_tree(token, "ready-limit"))
    assert seen.status is ObservationStatus.TIMED_OUT
    assert "time limit of 2 s" in seen.summary
    assert (bench.root / "ready-limit").exists()
    assert processes_with(token) == []


def test_what_a_command_leaves_in_the_background_ends_with_it(bench: WorkspaceBench) -> None:
    token = f"token-background-{bench.workspace.kind}"
    seen = bench.act("run", command=f"setsid sh -c 'sleep 600; : {token}' & echo started")
    assert bench.shown(seen) == "started\n"
    assert processes_with(token) == []


def test_keys_in_the_workers_environment_are_not_a_commands(
    bench: WorkspaceBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXAMPLE_API_KEY", "sk-123")
    assert "sk-123" not in bench.shown(bench.act("run", command="env"))


def test_a_sandbox_reaches_no_network_not_even_the_hosts_own(sandbox: WorkspaceBench, listening: int) -> None:
    line = f"python3 -c \"import socket; socket.create_connection(('127.0.0.1', {listening}), 5)\""
    assert "ConnectionRefusedError" in bench_text(sandbox, line)


def test_a_sandbox_sees_nothing_of_the_host_but_its_programs(sandbox: WorkspaceBench) -> None:
    places = f"{sandbox.home} {Path.home()}/.ssh {Path.home()}/.bashrc /etc/passwd /etc/shadow /var /opt /mnt"
    assert bench_text(sandbox, f"ls -d {places} 2>/dev/null") == ""
    assert bench_text(sandbox, "ls /proc | grep -c '^[0-9]'") in ("3\n", "4\n", "5\n")


def test_a_sandbox_can_change_its_workspace_and_nothing_else(sandbox: WorkspaceBench) -> None:
    line = (
        "for place in /x /usr/x /etc/x /proc/sys/kernel/hostname; do echo y > $place; done 2>/dev/null; echo z > here"
    )
    sandbox.act("run", command=line)
    assert (sandbox.root / "here").read_text() == "z\n"
    assert not Path("/usr/x").exists()
    refused = bench_text(sandbox, "touch /x /usr/x /etc/x")
    assert refused.count("Read-only file system") == 3


def test_a_sandbox_can_change_no_setting_of_the_kernel(sandbox: WorkspaceBench) -> None:
    """Files are only opened: where one can be written, it is the host's."""
    (sandbox.root / "probe.py").write_text(
        "import os\n"
        "found = [os.path.join(folder, name) for folder, _, names in os.walk('/proc/sys') for name in names]\n"
        "opened = []\n"
        "for path in found:\n"
        "    try:\n"
        "        os.close(os.open(path, os.O_WRONLY))\n"
        "        opened.append(path)\n"
        "    except OSError:\n"
        "        pass\n"
        "print(len(found) > 100, opened[:5])\n"
    )
    assert bench_text(sandbox, "python3 probe.py") == "True []\n"


def test_a_sandbox_has_devices_and_cannot_add_to_them(sandbox: WorkspaceBench) -> None:
    assert "Read-only file system" in bench_text(sandbox, "echo x > /dev/x")
    assert bench_text(sandbox, "echo x > /dev/null && head -c 4 /dev/urandom | wc -c") == "4\n"
    locks = "import multiprocessing; multiprocessing.Lock(); print('locks')"
    assert bench_text(sandbox, f'python3 -c "{locks}"') == "locks\n"


def test_a_sandbox_has_no_user_namespaces_of_its_own(sandbox: WorkspaceBench) -> None:
    assert "unshare failed" in bench_text(sandbox, "unshare --user true")


def test_a_sandbox_has_no_privilege(sandbox: WorkspaceBench) -> None:
    status = bench_text(sandbox, "id -u; grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status")
    assert status.split() == ["1000", "CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]


def test_a_sandbox_bounds_memory_and_files(sandbox: WorkspaceBench) -> None:
    assert "MemoryError" in bench_text(sandbox, "python3 -c 'bytearray(10**9)'")
    sandbox.act("run", command="head -c 5000000 /dev/zero > big")
    assert (sandbox.root / "big").stat().st_size == 1024 * 1024


def bench_text(bench: WorkspaceBench, command: str) -> str:
    return bench.shown(bench.act("run", command=command))
