"""The commands on what runs have left: events, output, plans, gc."""

from typing import Annotated

import typer

from client.options import Json, Kinds, TaskId, carry_out

app = typer.Typer(rich_markup_mode=None)


@app.command(epilog="Example: surefoot events task-hello-file-abcdefghij --kind action --kind observation")
def events(
    context: typer.Context,
    task_id: TaskId,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more until the task ends.")] = False,
    kind: Kinds = None,
    since: Annotated[str | None, typer.Option(help="Only events after this one, as e19.")] = None,
    as_json: Json = False,
) -> None:
    """Print a task's events, oldest first.

    Also those of a task that Temporal has forgotten. What is missing is said on stderr. Marks: ✓ good, ✗ bad,
    · neither.
    """
    from client import events as record

    wanted = tuple(kind or ())
    carry_out(context, lambda settings: record.events(settings, task_id, wanted, since, follow, as_json))


@app.command(epilog="Example: surefoot output task-hello-file-abcdefghij o15")
def output(
    context: typer.Context,
    task_id: TaskId,
    name: Annotated[
        str,
        typer.Argument(
            help="o15: what an action printed; f18: a frame, as judges read it; a requirement's id, or evaluator.1: "
            "what its latest check printed; 42: a model's reply, by the number of its effect in `surefoot show`; "
            "sha256:…: any artifact.",
            show_default=False,
        ),
    ],
    as_json: Json = False,
) -> None:
    """Print a whole text that a task refers to.

    What an action or a check printed, what a judge read, what a model answered. An unknown name is answered with those
    that there are.
    """
    from client import outputs

    carry_out(context, lambda settings: outputs.output(settings, task_id, name, as_json))


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
    Where Temporal cannot be asked, or a history holds a payload of an encoding that is none of ours (a codec's, say),
    nothing is removed (exit 6).

    Before that, tasks that ended without a record (terminated, timed out) get one while Temporal still has them.
    """
    from client import gc as collecting

    carry_out(context, lambda settings: collecting.gc(settings, older_than, dry_run, as_json))
