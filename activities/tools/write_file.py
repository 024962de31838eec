"""write_file: a text file as a whole."""

import asyncio

from activities.tools.tool import Tool, ToolContext, ToolResult, failed, succeeded
from activities.workspaces.paths import PathRefused, split_path, write_file
from schemas.effects import EffectClass
from schemas.tools import WriteFileArguments


async def execute(arguments: WriteFileArguments, context: ToolContext) -> ToolResult:
    """Write the file at once or not at all."""
    await context.claim()
    return await asyncio.to_thread(_write, arguments, context)


def _write(arguments: WriteFileArguments, context: ToolContext) -> ToolResult:
    data = arguments.content.encode("utf-8", "replace")
    try:
        new = write_file(context.root, split_path(context.root, arguments.path), data, context.incoming)
    except PathRefused as error:
        return failed(str(error))
    return succeeded(f"{'created' if new else 'replaced'} {arguments.path}, {len(data):,} bytes")


WRITE_FILE = Tool(
    name="write_file",
    description="Create a text file, or replace one as a whole. To change a part of a file use edit_file.",
    arguments=WriteFileArguments,
    execute=execute,
    preview=lambda arguments: f"{arguments.path}, {len(arguments.content):,} characters",
    effect_class=EffectClass.IDEMPOTENT,
)
