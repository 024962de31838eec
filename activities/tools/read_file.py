"""read_file: a text file, a page at a time."""

import asyncio

from activities.tools.tool import Tool, ToolContext, ToolResult, failed, succeeded
from activities.workspaces.excerpts import MAX_EXCERPT_CHARACTERS, decode
from activities.workspaces.paths import PathRefused, read_file, split_path
from schemas.base import counted
from schemas.effects import EffectClass
from schemas.tools import ReadFileArguments

MAX_FILE_BYTES = 10 * 1024 * 1024


async def execute(arguments: ReadFileArguments, context: ToolContext) -> ToolResult:
    """Read whole lines, as many as one observation can show."""
    await context.claim()
    return await asyncio.to_thread(_read, arguments, context)


def _read(arguments: ReadFileArguments, context: ToolContext) -> ToolResult:
    try:
        data = read_file(context.root, split_path(context.root, arguments.path), MAX_FILE_BYTES)
    except PathRefused as error:
        return failed(str(error))
    if b"\x00" in data:
        return failed(f"{arguments.path} is no text: it holds NUL bytes ({len(data):,} bytes)")
    lines = context.secrets.mask(decode(data)).splitlines(keepends=True)
    first = arguments.start_line
    if first > max(len(lines), 1):
        return failed(f"{arguments.path} has only {counted(len(lines), 'line')}")
    page = _page(lines[first - 1 :])
    shown = f"{arguments.path}: lines {first:,} to {first - 1 + len(page):,} of {len(lines):,}"
    if first - 1 + len(page) < len(lines):
        shown += f"; go on with start_line {first + len(page)}"
    return succeeded(shown if lines else f"{arguments.path} is empty", "".join(page))


def _page(lines: list[str]) -> list[str]:
    """Return the lines that fit into an excerpt, at least one."""
    size = 0
    for number, line in enumerate(lines):
        size += len(line)
        if size > MAX_EXCERPT_CHARACTERS and number:
            return lines[:number]
    return lines


READ_FILE = Tool(
    name="read_file",
    description="Read a text file, some thousand characters at a time; the result says which lines it shows.",
    arguments=ReadFileArguments,
    execute=execute,
    preview=lambda arguments: f"{arguments.path} from line {arguments.start_line}",
    effect_class=EffectClass.READ_ONLY,
)
