"""`surefoot scenario …`: the commands about scenario files."""

from pathlib import Path
from typing import Annotated

import typer

from client.options import Json, Override, Scenario, carry_out, entry_of, with_model_options

scenario_app = typer.Typer(
    help="Check scenario files; print their schema, or the task's input.",
    epilog="Example: surefoot scenario check scenarios/hello-file.yaml",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@scenario_app.command("check", epilog="Example: surefoot scenario check scenarios/*.yaml")
def scenario_check(
    context: typer.Context,
    scenarios: Annotated[list[Path], typer.Argument(help="Scenario files.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Check scenario files as `run` would, with file, line and field of every problem. Nothing is started."""
    from client import checking

    carry_out(context, lambda settings: checking.check(settings, scenarios, as_json))


@scenario_app.command("schema", epilog="Example: surefoot scenario schema > scenario.schema.json")
def scenario_schema(context: typer.Context) -> None:
    """Print the JSON Schema of scenario files, for completion in editors."""
    from client import checking

    carry_out(context, lambda _settings: checking.print_schema())


@scenario_app.command("input", epilog="Example: surefoot scenario input scenarios/hello-file.yaml > task.json")
@with_model_options
def scenario_input(
    context: typer.Context,
    scenario: Scenario,
    override: Override = (),
) -> None:
    """Print the workflow input that `submit` would send, for clients that do without Surefoot's code.

    Seed and script, where there are any, go into the artifact store, which the workers must share. `surefoot gc` keeps
    them for 30 days after the last time, and while a schedule or a task refers to them.
    """
    from client import checking

    carry_out(context, lambda settings: checking.print_input(settings, scenario, entry_of(override)))
