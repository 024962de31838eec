"""The command line where no server is needed: help, bad input, exit codes, and nothing started by a refusal."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from client.main import app
from client.problems import BadInput
from client.reporting import EXIT_INTERRUPTED, carry_out
from client.tiers import entry_of
from schemas.outcome import EXIT_BAD_INPUT, EXIT_PREREQUISITE
from schemas.pricing import Price
from stores.settings import Settings
from tests.client.scenario_files import HEAD, SCRIPT, rehearsed_scenario, write_scenario

COMMANDS = (
    "up",
    "down",
    "run",
    "submit",
    "ps",
    "show",
    "watch",
    "pause",
    "resume",
    "cancel",
    "steer",
    "worker",
    "doctor",
)
HEAVY = ("temporalio", "sqlalchemy", "pydantic", "schemas", "stores", "yaml", "litellm")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, with nothing of this machine's environment."""
    for name in list(os.environ):
        if name.startswith(("SUREFOOT_", "TEMPORAL_", "OPENAI_")):
            monkeypatch.delenv(name)
    folder = tmp_path / "home"
    monkeypatch.setenv("SUREFOOT_HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def started(home: Path) -> list[str]:
    """Return what shows that something was started."""
    return [name for name in ("run", "temporal.db", "surefoot.db", "workspaces") if (home / name).exists()]


def test_help_is_quick_because_it_imports_nothing_heavy() -> None:
    code = "import sys\nsys.argv = ['surefoot', '--help']\nimport client.main\n"
    code += "try: client.main.app()\nexcept SystemExit: pass\n"
    code += f"print('LOADED', [name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "LOADED []" in done.stdout


@pytest.mark.parametrize("command", [*COMMANDS, "scenario check", "scenario schema"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert re.search(rf"Example: .*surefoot {command}", result.output)


@pytest.mark.parametrize(
    "arguments",
    [["fly"], ["run"], ["show"], ["steer", "task-x"], ["ps", "--limit", "0"], ["run", "x.yaml", "--colour"]],
    ids=" ".join,
)
def test_a_command_line_that_makes_no_sense_is_bad_input(arguments: list[str], home: Path) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == EXIT_BAD_INPUT
    assert started(home) == []


@pytest.mark.parametrize("command", ["run", "submit"])
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("colour: red\n", "task.yaml:7: colour: unknown field"),
        ("models: {default: rehearsed}\nrehearsal: gone.yaml\n", "task.yaml:8: rehearsal: no such file"),
        ("bounds: {max_plan_versions: 0}\n", "task.yaml:7: bounds.max_plan_versions"),
        ("workspace: {kind: local}\n", "no model for the tier planner"),
    ],
)
def test_a_bad_scenario_is_refused_and_nothing_is_started(
    command: str, more: str, said: str, home: Path, tmp_path: Path
) -> None:
    path = write_scenario(tmp_path, HEAD + more)
    result = CliRunner().invoke(app, [command, str(path)])
    assert result.exit_code == EXIT_BAD_INPUT
    assert said in result.stderr
    assert started(home) == []


def test_options_of_a_model_without_a_model_are_bad_input(home: Path, tmp_path: Path) -> None:
    path = rehearsed_scenario(tmp_path, "true")
    result = CliRunner().invoke(app, ["run", str(path), "--api-base", "http://localhost:1"])
    assert result.exit_code == EXIT_BAD_INPUT
    assert "--api-base, --api-key-env and --price belong to --model" in result.stderr


def test_the_price_of_a_model_on_the_command_line_meets_a_money_limit(home: Path, tmp_path: Path) -> None:
    entry = entry_of("openai/local", "http://127.0.0.1:1/v1", None, "0.25/2")
    assert entry is not None
    assert entry.price is not None
    assert entry.price.frozen_price() == Price(input_microusd_per_mtok=250_000, output_microusd_per_mtok=2_000_000)
    for wrong in ("0.25", "x/1", "-1/2", "1/2/3"):
        with pytest.raises(BadInput, match="--price"):
            entry_of("openai/local", None, None, wrong)


def test_scenario_check_tells_every_problem_of_every_file_as_json(home: Path, tmp_path: Path) -> None:
    good = rehearsed_scenario(tmp_path, "true", "workspace: {kind: local}\n")
    bad = tmp_path / "bad.yaml"
    bad.write_text(HEAD + "colour: red\nbounds: {max_plan_versions: 0}\n")
    result = CliRunner().invoke(app, ["scenario", "check", str(good), str(bad), "--json"])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == EXIT_BAD_INPUT
    assert [line["ok"] for line in lines] == [True, False]
    assert [(problem["line"], problem["field"]) for problem in lines[1]["problems"]] == [
        (7, "colour"),
        (8, "bounds.max_plan_versions"),
    ]
    assert started(home) == []


def test_scenario_schema_is_json(home: Path) -> None:
    result = CliRunner().invoke(app, ["scenario", "schema"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["properties"]["goal"]["description"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["steer", "x", ""], "the text is empty"),
        (["steer", "x", " \n"], "the text is empty"),
        (["steer", "x", "y" * 2001], "the text: String should have at most 2000 characters"),
        (["pause", "x", "--by", "y" * 201], "--by: String should have at most 200 characters"),
        (["cancel", "x", "\udcff"], "the text: "),
        (["show", "\udcff"], r"not an id: '\udcff'"),
        (["watch", "a\nb"], "not an id"),
        (["steer", "\udcff", "y"], "not an id"),
    ],
)
def test_a_message_or_an_id_that_cannot_be_is_bad_input(arguments: list[str], said: str, home: Path) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == EXIT_BAD_INPUT
    assert said in re.sub(r"\s+", " ", result.stderr)
    assert started(home) == []


def test_a_seed_with_a_loop_of_links_is_bad_input(home: Path, tmp_path: Path) -> None:
    (tmp_path / "seed").mkdir()
    (tmp_path / "seed" / "loop").symlink_to("loop")
    path = rehearsed_scenario(tmp_path, "true", "workspace: {kind: local, seed: seed}\n")
    result = CliRunner().invoke(app, ["submit", str(path)])
    assert result.exit_code == EXIT_BAD_INPUT
    assert "workspace.seed: " in result.stderr
    assert "leads nowhere: loop" in result.stderr
    assert started(home) == []


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_the_terminal_cannot_show_is_escaped(encoding: str, tmp_path: Path) -> None:
    path = write_scenario(tmp_path, HEAD + "雪: 1\n")
    command = [sys.executable, "-m", "client.main", "--home", str(tmp_path), "scenario", "check", str(path)]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == EXIT_BAD_INPUT
    assert r"task.yaml:7: \u96ea: unknown field" in done.stdout


def test_the_version_is_printed() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"surefoot {version('surefoot')}\n")


def test_an_interrupted_command_says_so(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_settings: Settings) -> int:
        raise KeyboardInterrupt

    assert carry_out(home, interrupted) == EXIT_INTERRUPTED
    assert capsys.readouterr().err == "surefoot: interrupted\n"


@pytest.mark.parametrize("arguments", [["ps"], ["show", "x"], ["watch", "x"], ["cancel", "x"], ["steer", "x", "y"]])
def test_where_nothing_ever_ran_the_command_that_starts_it_is_named(arguments: list[str], home: Path) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == EXIT_PREREQUISITE
    assert "surefoot up" in result.stderr
    assert started(home) == []


def test_a_server_of_ones_own_that_is_down_is_named_with_what_to_do(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    result = CliRunner().invoke(app, ["ps"])
    assert result.exit_code == EXIT_PREREQUISITE
    assert "no Temporal server at 127.0.0.1:1" in result.stderr
    assert "TEMPORAL_ADDRESS" in result.stderr


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [("SUREFOOT_COLOUR", "red", "SUREFOOT_COLOUR"), ("SUREFOOT_LOG_LEVEL", "loud", "SUREFOOT_LOG_LEVEL")],
)
def test_settings_that_cannot_be_used_are_bad_input(
    variable: str, value: str, said: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    result = CliRunner().invoke(app, ["ps"])
    assert result.exit_code == EXIT_BAD_INPUT
    assert said in result.stderr


def test_the_process_ends_with_the_exact_code_and_all_output_flushed(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, HEAD + "colour: red\n", SCRIPT % "true")
    command = [sys.executable, "-m", "client.main", "--home", str(tmp_path / "home"), "scenario", "check", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == EXIT_BAD_INPUT
    assert "unknown field" in done.stdout


def test_a_reader_that_goes_away_early_gives_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m client.main --home {tmp_path} scenario schema | head -c 10"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr


def test_doctor_says_what_works_and_names_what_mends_the_rest(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    found = {line["name"]: line for line in map(json.loads, result.stdout.splitlines())}
    assert result.exit_code == 0, result.stdout
    assert {"python", "home", "database", "temporal", "sandbox", "litellm", "server"} <= set(found)
    assert found["temporal"]["status"] == "ok"
    assert (found["server"]["status"], found["server"]["mend"]) == ("warn", "surefoot up")


def test_doctor_says_which_secrets_resolve_and_shows_no_value(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREFOOT_SECRETS__A_TOKEN__ENV", "OUTSIDE_A")
    monkeypatch.setenv("OUTSIDE_A", "hunter2hunter2")
    monkeypatch.setenv("SUREFOOT_SECRETS__B_TOKEN__FILE", "/none/such")
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0, result.stdout
    assert re.search(r"ok +secret +A_TOKEN resolves here", result.stdout)
    assert re.search(r"warn +secret +B_TOKEN: /none/such cannot be read: No such file", result.stdout)
    assert "→ [secrets.B_TOKEN] in " in result.stdout
    assert "hunter2" not in result.stdout


def test_doctor_fails_where_something_must_be_mended(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUREFOOT_TEMPORAL_CLI", str(tmp_path / "gone"))
    monkeypatch.setenv("SUREFOOT_TIERS__JUDGE__MODEL", "openai/gpt-4.1")
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == EXIT_PREREQUISITE
    assert "→ make setup" in result.stdout
    assert re.search(r"fail judge +openai/gpt-4.1: OPENAI_API_KEY is not set", result.stdout)
