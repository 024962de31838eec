"""write_file: a text file as a whole."""

import asyncio
from typing import Annotated

from pydantic import Field

from activities.tools.tool import PathArgument, Tool, ToolContext, ToolResult, failed, succeeded
from activities.workspaces.paths import PathRefused, split_path, write_file
from schemas.base import Frozen
from schemas.effects import EffectClass

MAX_TEXT_CHARACTERS = 500_000


class WriteFileArguments(Frozen):
    """Arguments of ``write_file``."""

    path: PathArgument
    """Path relative to the workspace's folder; missing folders are made."""
    content: Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]
    """The file's whole new text."""


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
