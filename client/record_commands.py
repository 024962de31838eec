"""The commands on what runs have left: events, plans, gc."""

from typing import Annotated

import typer

from client.options import Json, TaskId, carry_out

app = typer.Typer(rich_markup_mode=None)


@app.command(epilog="Example: surefoot events task-hello-file-abcdefghij --kind action --kind observation")
def events(
    context: typer.Context,
    task_id: TaskId,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more until the task ends.")] = False,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind; may be given several times.")] = None,
    since: Annotated[str | None, typer.Option(help="Only events after this one, as e19.")] = None,
    as_json: Json = False,
) -> None:
    """Print a task's events, oldest first.

    Also those of a task that Temporal has forgotten. What is missing is said on stderr.
    """
    from client import events as record

    wanted = tuple(kind or ())
    carry_out(context, lambda settings: record.events(settings, task_id, wanted, since, follow, as_json))


@app.command(epilog="Example: surefoot plans task-hello-file-abcdefghij --diff")
def plans(
    context: typer.Context,
    task_id: TaskId,
    diff: Annotated[bool, typer.Option("--diff", help="Say what became of each step in the next version.")] = False,
    as_json: Json = False,
) -> None:
    """Print every version of a task's plan, with why it was written."""
    from client import plans as versions

    carry_out(context, lambda settings: versions.plans(settings, task_id, diff, as_json))


@app.command(epilog="Example: surefoot gc --older-than 14d --dry-run")
def gc(
    context: typer.Context,
    older_than: Annotated[str, typer.Option(help="Age of what ended, in days or hours: 30d, 12h.")] = "30d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing, say what would be removed.")] = False,
    as_json: Json = False,
) -> None:
    """Remove what nothing needs any more; safe while workers run.

    Artifacts: removed where nothing refers to them: no history that Temporal still has, no ended run's record, no
    effect in the ledger, no archived event, no schedule's input, no input that `scenario input` has printed within 30
    days, and nothing that one of these refers to. One that was written or found again within the last day stays.

    Workspaces: removed where their run ended longer ago than --older-than. One without a recorded end counts from
    when it was opened, and stays while Temporal has its run's history.

    Logs: removed where nothing was written to them for --older-than, unless the embedded server or a worker runs.

    Never removed: the ledger, the archive, the rehearsed model's record, the key that signs references to artifacts.
    Where Temporal cannot be asked nothing is removed (exit 6).
    """
    from client import gc as collecting

    carry_out(context, lambda settings: collecting.gc(settings, older_than, dry_run, as_json))
