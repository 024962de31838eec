"""The command line. Commands import what they need when they run, so that `--help` is quick."""

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client import record_commands
from client.options import (
    By,
    Flags,
    Json,
    Override,
    Role,
    RunningTaskId,
    Scenario,
    TaskId,
    Text,
    Worker,
    carry_out,
    entry_of,
    with_model_options,
)
from client.scenario_commands import scenario_app
from client.streams import accept_any_text

if TYPE_CHECKING:
    from schemas.messages import SignalName

EXIT_NOT_WRITTEN = 6  # schemas.outcome.EXIT_PREREQUISITE, without its import
EXIT_BUG = 4

app = typer.Typer(
    name="surefoot",
    help="LLM agents as durable workflows: what they decide, spend and wait for survives any crash.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich takes longer than everything else that `--help` does
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 verified, 1 finished but the evaluator says no, 2 bad input, 3 stopped incomplete, "
    "4 failed, 5 cancelled, 6 something is missing or does not run, 130 interrupted. "
    "Example: surefoot run scenarios/hello-file.yaml. Documentation: README.md and docs/ beside the code.",
)
app.add_typer(scenario_app, name="scenario")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"surefoot {version('surefoot')}")
        raise typer.Exit


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
def up(context: typer.Context, worker: Worker = True, as_json: Json = False) -> None:
    """Start the embedded Temporal server and a worker. What runs already is left alone."""
    from client import serving

    carry_out(context, lambda settings: serving.up(settings, worker, as_json))


@app.command(epilog="Example: surefoot down")
def down(context: typer.Context) -> None:
    """Stop the embedded server and its worker. Unfinished tasks go on at the next `up`."""
    from client import serving

    carry_out(context, serving.down)


@app.command(epilog="Example: surefoot run scenarios/fix-failing-test.yaml")
@with_model_options
def run(
    context: typer.Context,
    scenario: Scenario,
    override: Override = (),
    worker: Worker = True,
    as_json: Json = False,
) -> None:
    """Run a scenario to its end, and follow it live.

    It starts what is missing, and exits with the outcome's code. Ctrl-C detaches; the task goes on.
    """
    from client import running

    carry_out(context, lambda settings: running.run(settings, scenario, entry_of(override), worker, as_json))


@app.command(epilog="Example: ID=$(surefoot submit scenarios/hello-file.yaml)")
@with_model_options
def submit(
    context: typer.Context,
    scenario: Scenario,
    override: Override = (),
    worker: Worker = True,
    as_json: Json = False,
) -> None:
    """Start a scenario and print its task's id, without following it."""
    from client import running

    carry_out(context, lambda settings: running.submit(settings, scenario, entry_of(override), worker, as_json))


@app.command(epilog="Example: surefoot ps --running --json")
def ps(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, newest first.")] = 20,
    running: Annotated[bool, typer.Option("--running", help="Only tasks that have not ended.")] = False,
    as_json: Json = False,
) -> None:
    """List tasks, newest first."""
    from client import listing

    carry_out(context, lambda settings: listing.ps(settings, limit, running, as_json))


@app.command(epilog="Example: surefoot show task-hello-file-abcdefghij --diff --events 40")
def show(
    context: typer.Context,
    task_id: TaskId,
    events: Annotated[int, typer.Option(min=0, max=1000, help="How many of the last events.")] = 15,
    diff: Annotated[bool, typer.Option("--diff", help="Print what changed in the workspace.")] = False,
    as_json: Json = False,
) -> None:
    """Show everything about one task. Plans, steps, requirements, spend, effects, events."""
    from client import asking

    carry_out(context, lambda settings: asking.show(settings, task_id, events, diff, as_json))


@app.command(epilog="Example: surefoot watch task-hello-file-abcdefghij")
def watch(context: typer.Context, task_id: TaskId, as_json: Json = False) -> None:
    """Follow a task live to its end and exit with the outcome's code. Ctrl-C detaches.

    Marks: ✓ good, ✗ bad, · neither. Steps: ○ to do, ● done, ✗ failed, ▸ the current one.
    """
    from client import running

    carry_out(context, lambda settings: running.watch(settings, task_id, as_json))


@app.command(epilog='Example: surefoot pause task-hello-file-abcdefghij "wait for the release"')
def pause(
    context: typer.Context, task_id: RunningTaskId, text: Text = "", by: By = None, as_json: Json = False
) -> None:
    """Pause a task. A command that runs is stopped with everything it started."""
    from schemas.messages import SignalName

    _tell(context, task_id, SignalName.PAUSE, text, by, as_json)


@app.command(epilog="Example: surefoot resume task-hello-file-abcdefghij")
def resume(
    context: typer.Context, task_id: RunningTaskId, text: Text = "", by: By = None, as_json: Json = False
) -> None:
    """Let a paused task go on."""
    from schemas.messages import SignalName

    _tell(context, task_id, SignalName.RESUME, text, by, as_json)


@app.command(epilog='Example: surefoot cancel task-hello-file-abcdefghij "no longer needed"')
def cancel(
    context: typer.Context, task_id: RunningTaskId, text: Text = "", by: By = None, as_json: Json = False
) -> None:
    """End a task as CANCELLED. A command that runs is stopped with everything it started."""
    from schemas.messages import SignalName

    _tell(context, task_id, SignalName.CANCEL, text, by, as_json)


@app.command(epilog='Example: surefoot steer task-hello-file-abcdefghij "leave the public API as it is"')
def steer(
    context: typer.Context,
    task_id: RunningTaskId,
    text: Annotated[str, typer.Argument(help="What the next decision should know.", show_default=False)],
    by: By = None,
    as_json: Json = False,
) -> None:
    """Tell a running task something. Planner and executor see it from the next decision on."""
    from schemas.messages import SignalName

    _tell(context, task_id, SignalName.STEER, text, by, as_json)


@app.command(epilog="Example: surefoot worker --role workspace")
def worker(
    context: typer.Context,
    role: Annotated[
        Role, typer.Option(help="home: workflows, models, ledger. workspace: commands and files of this host.")
    ] = Role.ALL,
    queue_prefix: Annotated[
        str | None, typer.Option(help="Main queue, and beginning of the others.", show_default="the setting")
    ] = None,
    without_litellm: Annotated[
        bool, typer.Option("--without-litellm", help="Answer for rehearsed models only, and start faster.")
    ] = False,
) -> None:
    """Run a worker in the foreground, for the server that is configured, until Ctrl-C or SIGTERM."""
    from client import serving

    carry_out(context, lambda settings: serving.worker(settings, role.value, queue_prefix, without_litellm))


@app.command(epilog="Example: surefoot doctor")
def doctor(context: typer.Context, as_json: Json = False) -> None:
    """Say what works here, and the command that mends what does not. Exits with 6 where something must be mended."""
    from client import doctor as examination

    carry_out(context, lambda settings: examination.doctor(settings, as_json))


app.add_typer(record_commands.app)


@app.command(epilog="Example: surefoot contract --json")
def contract(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Print the wire contract. It is what any Temporal client needs to start, signal and query a task."""
    from client import checking

    carry_out(context, lambda _settings: checking.print_contract(as_json))


def _tell(context: typer.Context, task_id: str, name: "SignalName", text: str, by: str | None, as_json: bool) -> None:
    from client import telling

    carry_out(context, lambda settings: telling.tell(settings, task_id, name, text, by, as_json))


def main() -> None:
    """Run the command line and end the process with the exact exit code."""
    code = EXIT_BUG
    accept_any_text()
    try:
        app(prog_name="surefoot")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else EXIT_BUG
    except OSError as error:  # of help and the like; commands report their own
        code = _not_written(error)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        _leave(code)


def _not_written(error: OSError) -> int:
    """Say that the output is lost, and return the exit code for it."""
    os.write(2, f"surefoot: the output could not be written: {error.strerror}\n".encode())
    return EXIT_NOT_WRITTEN


def _leave(code: int) -> None:
    """Flush and end at once: the client library may abort a normal exit, and then the exit code would lie."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        pass  # the reader has gone; there is nobody to tell
    except OSError as error:  # the disk that it should go to is full
        code = code or _not_written(error)
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
