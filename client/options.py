"""What the commands have in common: their options and arguments, and how one is carried out."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.scenario import ModelEntry
    from stores.settings import Settings


def _printable(text: str) -> str:
    """Refuse nothing, and bytes that are no text: no task has such an id, and Temporal takes none."""
    if not text.strip() or not text.isprintable():
        raise typer.BadParameter(f"not an id: {text!a}")
    return text


def _known_tasks(incomplete: str) -> list[str]:
    """Complete a task's id; imported when a shell asks."""
    from client.completion import task_ids

    return task_ids(incomplete)


Scenario = Annotated[Path, typer.Argument(help="Scenario file (YAML).", show_default=False)]
TaskId = Annotated[
    str,
    typer.Argument(
        help="The task's id, as `surefoot ps` lists it.",
        show_default=False,
        callback=_printable,
        autocompletion=_known_tasks,
    ),
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


def carry_out(context: typer.Context, command: "Callable[[Settings], int]") -> NoReturn:
    """Run ``command`` on the configured settings, and end with its exit code."""
    from client import reporting

    flags: Flags = context.obj
    as_json = bool(context.params.get("as_json"))
    raise typer.Exit(reporting.carry_out(flags.home, command, as_json))


def entry_of(*override: str | None) -> "ModelEntry | None":
    """Return the model that the options name, or None. Raises BadInput."""
    from client import tiers

    return tiers.entry_of(*override)
