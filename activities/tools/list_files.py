"""list_files: what is in a folder and below."""

import asyncio

from activities.tools.tool import Tool, ToolContext, ToolResult, failed, succeeded
from activities.workspaces.paths import PathRefused, split_path
from activities.workspaces.walking import Found, walk
from schemas.base import counted
from schemas.effects import EffectClass
from schemas.tools import ListFilesArguments

MAX_LISTED_FILES = 2000


async def execute(arguments: ListFilesArguments, context: ToolContext) -> ToolResult:
    """List the files below the folder, by path."""
    await context.claim()
    return await asyncio.to_thread(_list, arguments, context)


def _list(arguments: ListFilesArguments, context: ToolContext) -> ToolResult:
    try:
        start = split_path(context.root, arguments.path)
        listing = walk(context.root, context.stop.is_set, start, MAX_LISTED_FILES, noise=False)
    except PathRefused as error:
        return failed(str(error))
    more = f", {listing.skipped:,} more are not listed" if listing.skipped else ""
    text = "".join(f"{_line(found)}\n" for found in listing.found)
    return succeeded(f"{counted(len(listing.found), 'file')} in {arguments.path}{more}", text)


def _line(found: Found) -> str:
    return f"{found.path}  ({found.stat.st_size:,} bytes)" if found.is_file else f"{found.path}  ({found.kind})"


LIST_FILES = Tool(
    name="list_files",
    description=(
        "List the files of a folder and all folders below, with their sizes; caches, .git and node_modules are omitted."
    ),
    arguments=ListFilesArguments,
    execute=execute,
    preview=lambda arguments: arguments.path,
    effect_class=EffectClass.READ_ONLY,
)
