"""What the commands have in common: their options and arguments, and how one is carried out."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from schemas.scenario import ModelEntry
    from stores.settings import Settings


def _printable(text: str) -> str:
    """Refuse nothing, and bytes that are no text: no task has such an id, and Temporal takes none."""
    if not text.strip() or not text.isprintable():
        raise typer.BadParameter(f"not an id: {text!a}")
    return text


def _known_tasks(incomplete: str) -> list[str]:
    """Complete a task's id; imported when a shell asks."""
    from client.completion import offered_tasks

    return offered_tasks(incomplete, running_only=False)


def _running_tasks(incomplete: str) -> list[str]:
    """Complete the id of a task that has not ended."""
    from client.completion import offered_tasks

    return offered_tasks(incomplete, running_only=True)


def _kinds(incomplete: str) -> list[str]:
    """Complete a kind of events."""
    from client.completion import offered_kinds

    return offered_kinds(incomplete)


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
RunningTaskId = Annotated[
    str,
    typer.Argument(
        help="The task's id, as `surefoot ps --running` lists it.",
        show_default=False,
        callback=_printable,
        autocompletion=_running_tasks,
    ),
]
Kinds = Annotated[
    list[str] | None, typer.Option(help="Only this kind; may be given several times.", autocompletion=_kinds)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value a line.")]
Worker = Annotated[bool, typer.Option("--worker/--no-worker", help="Keep a worker beside the embedded server.")]
By = Annotated[str | None, typer.Option(help="Who sends it.", show_default="the system's user")]
Text = Annotated[str, typer.Argument(help="Reason, for the records.", show_default=False)]


class Role(StrEnum):
    """What a worker serves."""

    ALL = "all"
    HOME = "home"
    WORKSPACE = "workspace"


MODEL_OPTIONS = {
    "model": Annotated[str | None, typer.Option(help="Let this model answer every tier, whatever the scenario says.")],
    "api_base": Annotated[str | None, typer.Option(help="Address of an OpenAI-compatible service for --model.")],
    "api_key_env": Annotated[str | None, typer.Option(help="Environment variable that holds the key for --model.")],
    "price": Annotated[str | None, typer.Option(help="Dollars per million tokens, INPUT/OUTPUT: 0.25/2.")],
}
Override = tuple[str | None, ...]
"""What the options of MODEL_OPTIONS say, in their order."""


def with_model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the MODEL_OPTIONS at the place of its parameter ``override``, which gets their values."""
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        own = {parameter.name: parameter.annotation} if parameter.name != "override" else {}
        default = parameter.default if own else None
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, annotation in (own or MODEL_OPTIONS).items()
        ]

    @wraps(command)
    def run(**given: Any) -> None:
        override = tuple(given.pop(name) for name in MODEL_OPTIONS)
        command(**given, override=override)

    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(run)["__signature__"] = inspect.Signature(parameters)  # what typer reads
    return run


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


def entry_of(override: Override) -> "ModelEntry | None":
    """Return the model that the options name, or None. Raises BadInput."""
    from client import tiers

    return tiers.entry_of(*override)
