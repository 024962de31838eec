"""edit_file: one exact passage of a text file for another."""

import asyncio
import hashlib
from collections.abc import Mapping
from pathlib import Path

from activities.tools.tool import Tool, ToolContext, ToolResult, failed, succeeded
from activities.workspaces.manifest import is_text
from activities.workspaces.paths import PathRefused, read_file, split_path, write_file
from schemas.effects import EffectClass
from schemas.tools import EditFileArguments

MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_NAMED_LINES = 5


async def execute(arguments: EditFileArguments, context: ToolContext) -> ToolResult:
    """Replace the passage, having noted the digests of the file before and after."""
    try:
        parts = split_path(context.root, arguments.path)
        before = await asyncio.to_thread(read_file, context.root, parts, MAX_FILE_BYTES)
    except PathRefused as error:
        return failed(str(error))
    if not is_text(before):
        return failed(f"{arguments.path} is no UTF-8 text")
    old = arguments.old.encode("utf-8", "replace")
    problem = _problem(arguments.path, before, old)
    if problem:
        return failed(problem)
    after = before.replace(old, arguments.new.encode("utf-8", "replace"))
    await context.claim(marker={"before": _sha256(before), "after": _sha256(after)})
    try:
        await asyncio.to_thread(write_file, context.root, parts, after, context.incoming)
    except PathRefused as error:
        return failed(str(error))
    line = before[: before.index(old)].count(b"\n") + 1
    return succeeded(f"replaced one passage of {arguments.path} at line {line:,}")


def happened(arguments: EditFileArguments, root: Path, marker: Mapping[str, str]) -> bool | None:
    """Whether the file is as the edit would leave it, as it was before, or neither."""
    try:
        now = _sha256(read_file(root, split_path(root, arguments.path), MAX_FILE_BYTES))
    except PathRefused:
        return None
    return {marker.get("after"): True, marker.get("before"): False}.get(now)


def _problem(path: str, before: bytes, old: bytes) -> str | None:
    count = before.count(old)
    if count == 0:
        return f"the passage does not occur in {path}: read the file and copy the passage exactly, white space included"
    if count > 1:
        places = ", ".join(str(line) for line in _lines_of(before, old))
        return f"the passage occurs {count} times in {path} (lines {places}): take in more of the text around it"
    return None


def _lines_of(data: bytes, passage: bytes) -> list[int]:
    lines: list[int] = []
    position = data.find(passage)
    while position >= 0 and len(lines) < MAX_NAMED_LINES:
        lines.append(data.count(b"\n", 0, position) + 1)
        position = data.find(passage, position + len(passage))
    return lines


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


EDIT_FILE = Tool(
    name="edit_file",
    description="Replace one passage of a text file by another. The passage must match exactly and occur only once.",
    arguments=EditFileArguments,
    execute=execute,
    preview=lambda arguments: f"{arguments.path}: {arguments.old!r} → {arguments.new!r}",
    effect_class=EffectClass.RECONCILABLE,
    happened=happened,
)
