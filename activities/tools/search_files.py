"""search_files: where a text occurs."""

import asyncio
import contextlib
from collections.abc import Iterator

from activities.tools.tool import Tool, ToolContext, ToolResult, failed, succeeded
from activities.workspaces.excerpts import line_of
from activities.workspaces.paths import PathRefused, read_file, split_path
from activities.workspaces.stopping import Stopped
from activities.workspaces.walking import shown_path, walk
from schemas.base import counted
from schemas.effects import EffectClass
from schemas.tools import SearchFilesArguments

MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_HITS = 100
MAX_LINE_CHARACTERS = 300


async def execute(arguments: SearchFilesArguments, context: ToolContext) -> ToolResult:
    """Find the lines that hold the text."""
    await context.claim()
    return await asyncio.to_thread(_search, arguments, context)


def _search(arguments: SearchFilesArguments, context: ToolContext) -> ToolResult:
    hits: list[str] = []
    try:
        for hit in _hits(arguments, context):
            if len(hits) == MAX_HITS:
                return succeeded(f"the first {MAX_HITS} lines with the text; more are not listed", "".join(hits))
            hits.append(hit)
    except PathRefused as error:
        return failed(str(error))
    return succeeded(f"{counted(len(hits), 'line')} with the text", "".join(hits))


def _hits(arguments: SearchFilesArguments, context: ToolContext) -> Iterator[str]:
    wanted = arguments.text.casefold() if arguments.ignore_case else arguments.text
    for path, data in _texts(arguments, context):
        text = context.secrets.mask(data.decode("utf-8", "replace"))
        for number, line in enumerate(text.splitlines(), 1):
            if wanted in (line.casefold() if arguments.ignore_case else line):
                yield f"{path}:{number}: {line_of(line, MAX_LINE_CHARACTERS)}\n"


def _texts(arguments: SearchFilesArguments, context: ToolContext) -> Iterator[tuple[str, bytes]]:
    """Yield path and bytes of the one file that is named, or of every text file below the folder."""
    start = split_path(context.root, arguments.path)
    with contextlib.suppress(PathRefused):  # a folder, or nothing at all: then the walk says what is wrong
        yield shown_path("/".join(start)), read_file(context.root, start, MAX_FILE_BYTES)
        return
    for found in walk(context.root, context.stop.is_set, start, noise=False).found:
        if context.stop.is_set():
            raise Stopped
        if not found.is_file or found.stat.st_size > MAX_FILE_BYTES:
            continue
        try:
            data = read_file(context.root, found.parts, MAX_FILE_BYTES)
        except (PathRefused, OSError):  # gone or replaced since it was listed
            continue
        if b"\x00" not in data:
            yield found.path, data


SEARCH_FILES = Tool(
    name="search_files",
    description=(
        "Find the lines of text files that contain a text, literally (no pattern); gives path, line number and line."
    ),
    arguments=SearchFilesArguments,
    execute=execute,
    preview=lambda arguments: f"{arguments.text!r} in {arguments.path}",
    effect_class=EffectClass.READ_ONLY,
)
