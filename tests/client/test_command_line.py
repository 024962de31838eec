"""The command line where no server is needed: help, bad input, exit codes, and nothing started by a refusal."""

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from client.completion import offered_kinds, offered_tasks
from client.main import app
from client.problems import BadInput
from client.reporting import EXIT_INTERRUPTED, carry_out
from client.tiers import entry_of
from schemas.errors import LedgerUnavailable
from schemas.outcome import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_PREREQUISITE
from schemas.pricing import Price
from stores.settings import Settings
from tests.client.scenario_files import HEAD, SCRIPT, rehearsed_scenario, write_scenario

HEAVY = ("rich", "temporalio", "sqlalchemy", "pydantic", "schemas", "stores", "yaml", "litellm")


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


def every_command(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Return the words of every command and every group of commands."""
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from every_command(command, (*path, name))


@pytest.mark.parametrize("words", list(every_command(typer.main.get_command(app))), ids=" ".join)
def test_every_command_has_help_with_an_example(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*words, "--help"])
    assert result.exit_code == 0
    assert re.search(rf"Example:.*surefoot {' '.join(words)}".strip(), " ".join(result.output.split()))


def test_the_command_tree_is_walked_down_to_its_leaves() -> None:
    found = set(every_command(typer.main.get_command(app)))
    assert {("run",), ("scenario",), ("scenario", "check"), ("contract",)} <= found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_nothing_is_started(shell: str, home: Path) -> None:
    words = {"COMP_WORDS": "surefoot pa", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "surefoot pa"}
    environment = {
        **os.environ,
        **words,
        "_SUREFOOT_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    command = [sys.executable, "-m", "client.main"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert "pause" in done.stdout, done.stderr
    assert started(home) == []


def test_where_nothing_ever_ran_no_task_is_offered_and_nothing_is_made(home: Path) -> None:
    assert offered_tasks("task-", running_only=False) == []
    assert offered_tasks("task-", running_only=True) == []
    assert started(home) == []


def test_a_shell_completes_kinds_of_events_and_does_so_without_temporal_and_sqlalchemy(home: Path) -> None:
    assert offered_kinds("pl") == ["plan_version"]
    script = "import sys; from client.completion import offered_tasks as offer; offer('task-', running_only=False);"
    script += "print(sorted({'temporalio', 'sqlalchemy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n", done.stderr


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


@pytest.mark.parametrize("price", ["0", "abc", "1/", "1/2/3", "nan/1"])
def test_a_price_that_is_no_pair_says_how_one_is_written(home: Path, tmp_path: Path, price: str) -> None:
    arguments = ["run", str(write_scenario(tmp_path, HEAD)), "--model", "m", "--api-base", "http://x", "--price", price]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == EXIT_BAD_INPUT
    assert f"--price: give INPUT/OUTPUT in dollars per million tokens, as 0.25/2 or 0/0, not {price!r}" in result.stderr


def test_a_worker_of_no_known_role_is_bad_input_and_its_options_are_in_its_help(home: Path) -> None:
    result = CliRunner().invoke(app, ["worker", "--role", "nonsense"])
    assert result.exit_code == EXIT_BAD_INPUT
    assert "'nonsense' is not one of 'all', 'home', 'workspace'" in result.stderr
    helped = CliRunner().invoke(app, ["worker", "--help"]).stdout
    for option in ("--role", "--queue-prefix", "--without-litellm"):
        assert option in helped


def test_up_for_a_server_of_ones_own_names_the_command_for_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    result = CliRunner().invoke(app, ["up"])
    assert result.exit_code == EXIT_PREREQUISITE
    assert "TEMPORAL_ADDRESS names a Temporal server of its own: run a worker for it with `surefoot w" in result.stderr


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
        (["pause", ""], "not an id: ''"),
        (["cancel", " "], "not an id: ' '"),
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


def test_doctor_says_who_else_may_read_the_data_folder(home: Path) -> None:
    home.mkdir(mode=0o755, exist_ok=True)
    home.chmod(0o755)
    said = CliRunner().invoke(app, ["doctor"]).stdout
    assert re.search(rf"warn home .*every user of this machine may read it.*\n +→ chmod o= {home}\n", said)
    home.chmod(0o750)
    assert re.search("ok +home ", CliRunner().invoke(app, ["doctor"]).stdout)


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


def test_doctor_warns_of_a_password_that_is_masked_nowhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "postgres")
    stdout = CliRunner().invoke(app, ["doctor"]).stdout
    assert re.search(r"warn +secret +the database's password, from PGPASSWORD, is a common word or has fewer", stdout)
    assert "→ give that user a long random one" in stdout


def test_doctor_says_where_traces_and_metrics_go(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ok   traces" not in CliRunner().invoke(app, ["doctor"]).stdout
    monkeypatch.setenv("SUREFOOT_TELEMETRY__OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv("SUREFOOT_TELEMETRY__PROMETHEUS", "127.0.0.1:9464")
    said = CliRunner().invoke(app, ["doctor"]).stdout
    assert "ok   traces     to http://127.0.0.1:4318\n" in said
    assert "on http://127.0.0.1:9464/metrics\n" in said


def test_doctor_fails_where_something_must_be_mended(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUREFOOT_TEMPORAL_CLI", str(tmp_path / "gone"))
    monkeypatch.setenv("SUREFOOT_TIERS__JUDGE__MODEL", "openai/gpt-4.1")
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == EXIT_PREREQUISITE
    assert "→ make setup" in result.stdout
    assert re.search(r"fail judge +openai/gpt-4.1: OPENAI_API_KEY is not set", result.stdout)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BadInput("task.yaml:7: colour: unknown"), EXIT_BAD_INPUT, "surefoot: task.yaml:7: colour: unknown\n"),
        (LedgerUnavailable("it is away"), EXIT_PREREQUISITE, "LedgerUnavailable: it is away; `surefoot doctor`"),
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), EXIT_PREREQUISITE, "/x/y cannot be used: No space"),
        (OSError(errno.EROFS, "Read-only file system"), EXIT_PREREQUISITE, "with SUREFOOT_HOME"),
        (KeyError("x"), EXIT_FAILED, "a fault of Surefoot: KeyError: 'x'; the traceback is in "),
        (FileNotFoundError(errno.ENOENT, "gone", "z"), EXIT_FAILED, "please report it: the command, the traceback"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_whoever_can_mend_it_is_told_what_and_how(
    error: Exception, code: int, said: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(_settings: Settings) -> int:
        raise error

    assert carry_out(home, failing) == code
    assert said in capsys.readouterr().err


def test_with_json_an_error_is_one_object_on_standard_output_as_well(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = CliRunner().invoke(app, ["show", "task-none", "--json"])
    told = json.loads(result.stdout)
    assert told["error"]["type"] == "PrerequisiteError"
    assert told["error"]["exit_code"] == result.exit_code == EXIT_PREREQUISITE
    assert "start one with `surefoot up`" in told["error"]["message"]
    assert told["error"]["message"] in result.stderr
    assert CliRunner().invoke(app, ["show", "task-none"]).stdout == ""
    monkeypatch.setenv("SUREFOOT_COLOUR", "red")
    result = CliRunner().invoke(app, ["contract", "--json"])
    assert json.loads(result.stdout)["error"]["type"] == "SettingsError"
    assert json.loads(result.stdout)["error"]["exit_code"] == result.exit_code == EXIT_BAD_INPUT


@pytest.mark.parametrize("arguments", [["--version"], ["contract"], ["doctor", "--json"]])
def test_output_that_nobody_could_store_is_no_success(home: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "client.main", *arguments], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == EXIT_PREREQUISITE
    assert b"No space left on device" in done.stderr


def test_the_traceback_of_a_bug_is_in_the_log(home: Path) -> None:
    def failing(_settings: Settings) -> int:
        raise KeyError("of nobody")

    carry_out(home, failing)
    assert "KeyError: 'of nobody'" in (home / "logs" / "client.log").read_text()


def test_doctor_names_the_variable_that_leads_to_no_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    result = CliRunner().invoke(app, ["doctor", "--json"])
    found = {line["name"]: line for line in map(json.loads, result.stdout.splitlines())}
    assert result.exit_code == EXIT_PREREQUISITE
    assert found["server"]["detail"].startswith("no Temporal server at 127.0.0.1:1: ")
    assert found["server"]["mend"] == "Check that server, or unset TEMPORAL_ADDRESS to use the embedded one."


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("node: plan\n    reply: {why: x, steps: []}", "script.yaml:3: replies[0].reply.steps: got a list, must"),
        ("node: plan\n    reply: {why: x}", "script.yaml:3: replies[0].reply.steps: missing"),
        (
            "node: is_step_done\n    reply:\n      reason: x\n      result: 'yes'",
            'script.yaml:5: replies[0].reply.result: got "yes"',
        ),
        (
            "node: propose_action\n    reply: {thought: x, actions: [{tool: run, args: {}}]}",
            "script.yaml:3: replies[0].reply.actions[0].args: unknown field; did you mean",
        ),
        ("node: plan\n    when: ['(']\n    reply: x", "script.yaml:3: replies[0].when[0]: not a regular expression"),
    ],
)
def test_a_rehearsed_reply_that_no_model_could_give_is_refused_by_line(
    reply: str, said: str, home: Path, tmp_path: Path
) -> None:
    text = f"{HEAD}models: {{default: rehearsed}}\nrehearsal: script.yaml\nworkspace: {{kind: local}}\n"
    path = write_scenario(tmp_path, text, f"replies:\n  - {reply}\n")
    result = CliRunner().invoke(app, ["scenario", "check", str(path)])
    assert result.exit_code == EXIT_BAD_INPUT
    assert said in result.stdout


def test_an_unusable_reply_can_be_rehearsed_as_a_text(home: Path, tmp_path: Path) -> None:
    path = rehearsed_scenario(tmp_path, "true", "workspace: {kind: local}\n")
    (tmp_path / "script.yaml").write_text("replies:\n  - node: plan\n    reply: '{\"why\": 1}'\n")
    assert CliRunner().invoke(app, ["scenario", "check", str(path)]).exit_code == 0
