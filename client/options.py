"""What several modules of commands share: options and arguments, and how a command is carried out."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from stores.settings import Settings


@dataclass(frozen=True)
class Flags:
    """Options that stand before the command."""

    home: Path | None


def printable(text: str) -> str:
    """Refuse bytes that are no text: no task has such an id, and Temporal takes none."""
    if not text.isprintable():
        raise typer.BadParameter(f"not an id: {text!a}")
    return text


TaskId = Annotated[
    str, typer.Argument(help="The task's id, as `surefoot ps` lists it.", show_default=False, callback=printable)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value a line.")]


def carry_out(context: typer.Context, command: "Callable[[Settings], int]") -> NoReturn:
    """Run ``command`` on the configured settings and exit with its code."""
    from client import reporting

    flags: Flags = context.obj
    raise typer.Exit(reporting.carry_out(flags.home, command))
