"""What keeps a home from being served is told before anything starts, or stops what was started for it."""

import contextlib
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from client.embedded import child_environment, server_of, stop, supervisor_of, worker_of
from schemas.outcome import EXIT_PREREQUISITE, EXIT_VERIFIED
from stores.database import open_database
from stores.ledger import Ledger
from stores.settings import PREFIX, Settings, read_settings
from tests.client.scenario_files import rehearsed_scenario
from tests.support.command_line import command_line
from tests.support.postgres import PASSWORD, PostgresServer
from tests.support.processes import eventually, free_port
from tests.support.server import settings_of


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A data folder, with nothing left running at its end."""
    yield tmp_path / "home"
    stop(settings_of(tmp_path / "home"))


def make_newer(url: str) -> None:
    Ledger(url)
    engine = open_database(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    engine.dispose()


def assert_refused(settings: Settings, command: list[str], *words: str) -> None:
    """Assert that a command which starts something says ``words`` in place of it."""
    with command_line(settings) as surefoot:
        code, out, err = surefoot(*command)
    assert (code, out) == (EXIT_PREREQUISITE, "")
    assert [word for word in words if word not in err] == []
    assert PASSWORD not in err
    assert not settings.logs_dir.exists(), "nothing was started"


def test_a_ledger_of_a_newer_version_is_refused_before_anything_starts(
    home: Path, tmp_path: Path, postgres: PostgresServer
) -> None:
    scenario = str(rehearsed_scenario(tmp_path, "true"))
    in_a_file, on_a_server = f"sqlite:///{home}/surefoot.db", postgres.fresh()
    for url in (in_a_file, on_a_server):
        make_newer(url)
    for url, command in (
        (in_a_file, ["up"]),
        (in_a_file, ["run", scenario]),
        (on_a_server, ["submit", scenario]),
    ):
        assert_refused(settings_of(home, database_url=url), command, "revision 9999", "SUREFOOT_DATABASE_URL")


def test_a_ledger_that_cannot_be_read_is_refused_before_anything_starts(
    home: Path, tmp_path: Path, postgres: PostgresServer
) -> None:
    run = ["run", str(rehearsed_scenario(tmp_path, "true"))]
    home.mkdir()
    (home / "surefoot.db").write_bytes(b"no database " * 100)
    assert_refused(settings_of(home), run, f"{home}/surefoot.db is not a database", "SUREFOOT_HOME")
    stranger = postgres.fresh().replace("surefoot:", "somebody:")
    assert_refused(settings_of(home, database_url=stranger), run, "somebody:***@", "does it let this user in?")


WITHOUT = """
import sys
sys.modules[sys.argv.pop(1)] = None
from client.main import main
main()
"""


@pytest.mark.parametrize(
    ("package", "setting", "value"),
    [
        ("psycopg", "DATABASE_URL", "postgresql://surefoot@127.0.0.1:1/surefoot"),
        ("opentelemetry", "TELEMETRY__OTLP_ENDPOINT", "http://127.0.0.1:9"),
    ],
)
def test_a_package_that_the_settings_need_and_nobody_installed_is_named_at_once(
    home: Path, tmp_path: Path, package: str, setting: str, value: str
) -> None:
    scenario = rehearsed_scenario(tmp_path, "true")
    environment = {**child_environment(settings_of(home)), f"{PREFIX}{setting}": value}

    def without(*command: str) -> "subprocess.CompletedProcess[str]":
        program = [sys.executable, "-c", WITHOUT, package, *command]
        return subprocess.run(program, env=environment, capture_output=True, text=True, timeout=100, check=False)

    for command in (["up"], ["run", str(scenario)]):
        done = without(*command)
        assert done.returncode == EXIT_PREREQUISITE
        assert "make setup" in done.stderr
        before = 0 if command == ["up"] else 1  # that the model is rehearsed
        assert len(done.stderr.splitlines()) == before + 1, done.stderr
    done = without("doctor")
    assert "make setup" in done.stdout
    assert "start that database" not in done.stdout
    assert not (home / "logs").exists(), "nothing was started"


def test_a_process_that_serves_comes_to_the_settings_that_are_in_effect_wherever_it_runs(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    (home / "config.toml").write_text(
        'queue_prefix = "machine"\n[health]\naddress = "127.0.0.1:1"\n[deployment]\nname = "x"\nbuild_id = "1"\n'
    )
    (project / "surefoot.toml").write_text(
        'log_level = "debug"\ntemporal_cli = "/opt/temporal"\nqueue_prefix = "2026"\n'
        '[deployment]\nbuild_id = "1.10"\n[health]\naddress = "[::1]:8080"\n'
        '[telemetry]\notlp_endpoint = "http://127.0.0.1:4318"\nprometheus = "127.0.0.1:9464"\ncontent = true\n'
        'service_name = "12"\n'
    )
    meant = read_settings({"home": home}, {"SUREFOOT_DEPLOYMENT__NAME": "named-here"}, project)
    passed = {name: text for name, text in child_environment(meant).items() if name.startswith(PREFIX)}
    assert read_settings({}, passed, home) == meant
    assert meant.deployment is not None
    assert (meant.deployment.name, meant.deployment.build_id, meant.queue_prefix) == ("named-here", "1.10", "2026")


def up(folder: Path, home: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    """Run ``surefoot up`` in a project's folder; what the settings of this process say plays no part."""
    return subprocess.run(
        [sys.executable, "-m", "client.main", "--home", str(home), "up", *flags],
        cwd=folder,
        env={name: value for name, value in child_environment(settings_of(home)).items() if PREFIX not in name},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/ready", timeout=30) as answer:
            return bool(json.load(answer)["ok"])
    except (urllib.error.URLError, ConnectionError):
        return False


def test_the_supervised_worker_has_the_settings_of_the_project_that_it_was_started_from(
    home: Path, tmp_path: Path
) -> None:
    address = f"127.0.0.1:{free_port()}"
    (tmp_path / "surefoot.toml").write_text(f'[health]\naddress = "{address}"\n')
    done = up(tmp_path, home)
    assert done.returncode == EXIT_VERIFIED, done.stderr
    assert eventually(lambda: ready(address), 60)


def test_an_address_that_is_taken_is_told_and_the_worker_is_not_started_again_and_again(
    home: Path, tmp_path: Path
) -> None:
    settings = settings_of(home)
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        (tmp_path / "surefoot.toml").write_text(f'[health]\naddress = "{address}"\n')
        done = up(tmp_path, home)
        assert done.returncode == EXIT_PREREQUISITE
        last = done.stderr.splitlines()[-1]
        assert f"the worker does not start: health.address {address} cannot be used" in last
        assert "SUREFOOT_HEALTH__ADDRESS" in last
        assert supervisor_of(settings) is None, "what was started for the worker is stopped again"

        assert up(tmp_path, home, "--no-worker").returncode == EXIT_VERIFIED
        log = settings.logs_dir / "supervisor.log"
        for _ in range(2):
            done = up(tmp_path, home)
            assert done.returncode == EXIT_PREREQUISITE
            assert "`surefoot down` first" in done.stderr
            assert server_of(settings) is not None, "what ran before goes on"
        assert log.read_text().count("worker started as process") == 3, "once for each command that asked"
    assert up(tmp_path, home).returncode == EXIT_VERIFIED
    assert worker_of(settings) is not None
    assert ready(address)
