"""run: a command line in the workspace."""

import asyncio

from activities.tools.tool import Tool, ToolContext, ToolResult
from activities.workspaces.commands import CommandResult, Ending, run_command
from activities.workspaces.excerpts import last_line
from activities.workspaces.sandbox import shell_command
from schemas.actions import ObservationStatus
from schemas.effects import EffectClass, ProcessGroup
from schemas.tools import RunArguments
from stores.masking import label


def secret_guide(names: tuple[str, ...]) -> str:
    """Return what a model needs to know of the secrets that commands get; nothing where there are none."""
    if not names:
        return ""
    variables = ", ".join(f"${name}" for name in names)
    return (
        f"\n\nSecrets: commands of run find these environment variables set: {variables}. Use them by name, as in "
        f'"${names[0]}"; nobody is shown their values: where one would appear, {label("NAME")} stands instead.'
    )


async def execute(arguments: RunArguments, context: ToolContext) -> ToolResult:
    """Run the command under a guard, with the task's secrets as variables; nothing that it started outlives it.

    Raises SecretUnresolved before anything has started.
    """

    async def release(group: ProcessGroup) -> None:
        await context.claim(process=group)

    secrets = await asyncio.to_thread(context.secrets.resolve, context.workspace.secrets)
    command = shell_command(context.workspace, context.root, arguments.command, context.timeout_seconds, secrets)
    result = await run_command(command, context.stop, release, context.secrets)
    status, summary = _judge(result, context.timeout_seconds)
    if result.left:
        summary += f"; {result.left} of its processes could not be killed"
    return ToolResult(status, summary, result.output, result.exit_code)


def _judge(result: CommandResult, timeout_seconds: int) -> tuple[ObservationStatus, str]:
    if result.ending is Ending.TIMED_OUT:
        return ObservationStatus.TIMED_OUT, f"killed at its time limit of {timeout_seconds} s, with all it had started"
    if result.ending is Ending.STOPPED:
        return ObservationStatus.INTERRUPTED, "killed half-way on request, with all it had started"
    said = last_line(result.output)
    summary = f"exit code {result.exit_code}" + (f": …{said}" if said else ", no output")
    return ObservationStatus.SUCCEEDED if result.exit_code == 0 else ObservationStatus.FAILED, summary


RUN = Tool(
    name="run",
    description=(
        "Run a command line in the workspace's folder and get its exit code and output (stdout and stderr together). "
        "It has no input and no terminal, and a time limit. All processes that it starts end with it: nothing can be "
        "left running in the background."
    ),
    arguments=RunArguments,
    execute=execute,
    preview=lambda arguments: arguments.command,
    effect_class=EffectClass.NONE,
)
