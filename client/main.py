"""The command line. Commands import what they need when they run, so that `--help` is quick."""

import os
import sys
import traceback
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from client.streams import accept_any_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.messages import SignalName
    from schemas.scenario import ModelEntry
    from stores.settings import Settings

EXIT_BUG = 4

app = typer.Typer(
    name="surefoot",
    help="LLM agents as durable workflows: what they decide, spend and wait for survives any crash.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,  # typer's boxes import Markdown and highlighters: two thirds of what `--help` would take
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 verified, 1 finished but the evaluator says no, 2 bad input, 3 stopped incomplete, "
    "4 failed, 5 cancelled, 6 something is missing or does not run, 130 interrupted.",
)
scenario_app = typer.Typer(help="Check scenarios and print their schema.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(scenario_app, name="scenario")


def _printable(text: str) -> str:
    """Refuse bytes that are no text: no task has such an id, and Temporal takes none."""
    if not text.isprintable():
        raise typer.BadParameter(f"not an id: {text!a}")
    return text


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"surefoot {version('surefoot')}")
        raise typer.Exit


Scenario = Annotated[Path, typer.Argument(help="Scenario file (YAML).", show_default=False)]
TaskId = Annotated[
    str, typer.Argument(help="The task's id, as `surefoot ps` lists it.", show_default=False, callback=_printable)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value a line.")]
Model = Annotated[str | None, typer.Option(help="Let this model answer every tier, whatever the scenario says.")]
ApiBase = Annotated[str | None, typer.Option(help="Address of an OpenAI-compatible service for --model.")]
ApiKeyEnv = Annotated[str | None, typer.Option(help="Environment variable that holds the key for --model.")]
PriceOf = Annotated[str | None, typer.Option("--price", help="Dollars per million tokens, INPUT/OUTPUT: 0.25/2.")]
Worker = Annotated[bool, typer.Option("--worker/--no-worker", help="Keep a worker beside the embedded server.")]
By = Annotated[str | None, typer.Option(help="Who sends it.", show_default="the system's user")]
Text = Annotated[str, typer.Argument(help="Reason, for the records.", show_default=False)]


@dataclass(frozen=True)
class Flags:
    """Options that stand before the command."""

    home: Path | None


@app.callback()
def root(
    context: typer.Context,
    home: Annotated[Path | None, typer.Option(help="Data folder, in place of SUREFOOT_HOME.")] = None,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of every command."""
    context.obj = Flags(home)


@app.command(epilog="Example: surefoot up --no-worker")
def up(context: typer.Context, worker: Worker = True) -> None:
    """Start the embedded Temporal server and a worker; what runs already is left alone."""
    from client import serving

    _carry_out(context, lambda settings: serving.up(settings, worker))


@app.command(epilog="Example: surefoot down")
def down(context: typer.Context) -> None:
    """Stop the embedded server and its worker. Unfinished tasks go on at the next `up`."""
    from client import serving

    _carry_out(context, serving.down)


@app.command(epilog="Example: surefoot run scenarios/fix-failing-test.yaml")
def run(
    context: typer.Context,
    scenario: Scenario,
    model: Model = None,
    api_base: ApiBase = None,
    api_key_env: ApiKeyEnv = None,
    price: PriceOf = None,
    worker: Worker = True,
    as_json: Json = False,
) -> None:
    """Run a scenario to its end: start what is missing, follow it live, exit with the outcome's code.

    Ctrl-C detaches; the task goes on.
    """
    from client import running

    override = (model, api_base, api_key_env, price)
    _carry_out(context, lambda settings: running.run(settings, scenario, _entry(*override), worker, as_json))


@app.command(epilog="Example: ID=$(surefoot submit scenarios/hello-file.yaml)")
def submit(
    context: typer.Context,
    scenario: Scenario,
    model: Model = None,
    api_base: ApiBase = None,
    api_key_env: ApiKeyEnv = None,
    price: PriceOf = None,
    worker: Worker = True,
    as_json: Json = False,
) -> None:
    """Start a scenario and print its task's id, without following it."""
    from client import running

    override = (model, api_base, api_key_env, price)
    _carry_out(context, lambda settings: running.submit(settings, scenario, _entry(*override), worker, as_json))


@app.command(epilog="Example: surefoot ps --running --json")
def ps(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, newest first.")] = 20,
    running: Annotated[bool, typer.Option("--running", help="Only tasks that have not ended.")] = False,
    as_json: Json = False,
) -> None:
    """List tasks, newest first."""
    from client import asking

    _carry_out(context, lambda settings: asking.ps(settings, limit, running, as_json))


@app.command(epilog="Example: surefoot show task-hello-file-abcdefghij --diff --events 40")
def show(
    context: typer.Context,
    task_id: TaskId,
    events: Annotated[int, typer.Option(min=0, max=1000, help="How many of the last records.")] = 15,
    diff: Annotated[bool, typer.Option("--diff", help="Print what changed in the workspace.")] = False,
    as_json: Json = False,
) -> None:
    """Show everything about one task: plans, steps, requirements, spend, effects, records."""
    from client import asking

    _carry_out(context, lambda settings: asking.show(settings, task_id, events, diff, as_json))


@app.command(epilog="Example: surefoot watch task-hello-file-abcdefghij")
def watch(context: typer.Context, task_id: TaskId, as_json: Json = False) -> None:
    """Follow a task live to its end and exit with the outcome's code. Ctrl-C detaches."""
    from client import running

    _carry_out(context, lambda settings: running.watch(settings, task_id, as_json))


@app.command(epilog='Example: surefoot pause task-hello-file-abcdefghij "wait for the release"')
def pause(context: typer.Context, task_id: TaskId, text: Text = "", by: By = None, as_json: Json = False) -> None:
    """Pause a task; a command that runs is stopped with everything it started."""
    from schemas.messages import SignalName

    _tell(context, task_id, SignalName.PAUSE, text, by, as_json)


@app.command(epilog="Example: surefoot resume task-hello-file-abcdefghij")
def resume(context: typer.Context, task_id: TaskId, text: Text = "", by: By = None, as_json: Json = False) -> None:
    """Let a paused task go on."""
    from schemas.messages import SignalName

    _tell(context, task_id, SignalName.RESUME, text, by, as_json)


@app.command(epilog='Example: surefoot cancel task-hello-file-abcdefghij "no longer needed"')
def cancel(context: typer.Context, task_id: TaskId, text: Text = "", by: By = None, as_json: Json = False) -> None:
    """End a task as CANCELLED; a command that runs is stopped with everything it started."""
    from schemas.messages import SignalName

    _tell(context, task_id, SignalName.CANCEL, text, by, as_json)


@app.command(epilog='Example: surefoot steer task-hello-file-abcdefghij "leave the public API as it is"')
def steer(
    context: typer.Context,
    task_id: TaskId,
    text: Annotated[str, typer.Argument(help="What the next decision should know.", show_default=False)],
    by: By = None,
    as_json: Json = False,
) -> None:
    """Tell a running task something; planner and executor see it from the next decision on."""
    from schemas.messages import SignalName

    _tell(context, task_id, SignalName.STEER, text, by, as_json)


@app.command(
    epilog="Example: surefoot worker --role workspace",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def worker(context: typer.Context) -> None:
    """Run a worker in the foreground. What follows goes to the worker: --role all|home|workspace, --queue-prefix."""
    from client import serving

    arguments = list(context.args)
    _carry_out(context, lambda settings: serving.worker(settings, arguments))


@app.command(epilog="Example: surefoot doctor")
def doctor(context: typer.Context, as_json: Json = False) -> None:
    """Say what works here, and the command that mends what does not. Exits with 6 where something must be mended."""
    from client import doctor as examination

    _carry_out(context, lambda settings: examination.doctor(settings, as_json))


@scenario_app.command("check", epilog="Example: surefoot scenario check scenarios/*.yaml")
def scenario_check(
    context: typer.Context,
    scenarios: Annotated[list[Path], typer.Argument(help="Scenario files.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Check scenario files as `run` would, with file, line and field of every problem. Nothing is started."""
    from client import checking

    _carry_out(context, lambda settings: checking.check(settings, scenarios, as_json))


@scenario_app.command("schema", epilog="Example: surefoot scenario schema > scenario.schema.json")
def scenario_schema(context: typer.Context) -> None:
    """Print the JSON Schema of scenario files, for completion in editors."""
    from client import checking

    _carry_out(context, lambda _settings: checking.print_schema())


def _carry_out(context: typer.Context, command: "Callable[[Settings], int]") -> NoReturn:
    from client.reporting import carry_out

    flags: Flags = context.obj
    raise typer.Exit(carry_out(flags.home, command))


def _entry(*override: str | None) -> "ModelEntry | None":
    from client.tiers import entry_of

    return entry_of(*override)


def _tell(context: typer.Context, task_id: str, name: "SignalName", text: str, by: str | None, as_json: bool) -> None:
    from client import telling

    _carry_out(context, lambda settings: telling.tell(settings, task_id, name, text, by, as_json))


def main() -> None:
    """Run the command line and end the process with the exact exit code."""
    code = EXIT_BUG
    accept_any_text()
    try:
        app(prog_name="surefoot")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else EXIT_BUG
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        _leave(code)


def _leave(code: int) -> None:
    """Flush and end at once: the client library may abort a normal exit, and then the exit code would lie."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        pass  # the reader has gone; there is nobody to tell
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
