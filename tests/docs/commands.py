"""Reads documentation pages: their blocks of commands and files, and what keeps a block from being run."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
FILE_NAME = re.compile(r"# ([\w./-]+\.(?:py|yaml|toml))")


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: str
    """The page, relative to the project."""
    line: int
    """Line of its fence, from 1."""
    language: str
    """Word behind the fence."""
    text: str
    """What is inside."""
    reason: str | None
    """Why it is not run, where it says so."""

    @property
    def file(self) -> str | None:
        """The file that it is, where its first line is a comment with a path."""
        found = FILE_NAME.fullmatch(self.text.split("\n", 1)[0])
        return found[1] if found and self.language != "sh" else None


def pages() -> list[str]:
    """Return the README and all pages of docs/ and deploy/, the README last: it stops what it started."""
    folders = (ROOT / "docs", ROOT / "deploy")
    found = sorted(str(path.relative_to(ROOT)) for folder in folders for path in folder.rglob("*.md"))
    return [*found, "README.md"]


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    found: list[Block] = []
    lines = (ROOT / page).read_text("utf-8").splitlines()
    start, reason = None, None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            if start is None and line.strip():
                marker = NOT_RUN.fullmatch(line.strip())
                reason = marker[1] if marker else None
            continue
        if start is None:
            start = number
            continue
        text = "\n".join(lines[start + 1 : number])
        found.append(Block(page, start + 1, lines[start][3:].strip(), text, reason))
        start, reason = None, None
    assert start is None, f"{page}: the block of line {(start or 0) + 1} does not end"
    return found


def script(page: str, folder: Path) -> str:
    """Return a shell script of all commands of a page that are run; the files that it shows are written on the way."""
    parts = ["set -euo pipefail"]
    for block in blocks(page):
        if block.file is not None:
            path = folder / block.file
            parts.append(f"mkdir -p '{path.parent}'; cat > '{path}' <<'END_OF_FILE'\n{block.text}\nEND_OF_FILE")
        elif block.language == "sh" and block.reason is None:
            parts.append(f"echo '=== {block.page}:{block.line}' >&2\n{block.text}")
    return "\n".join(parts) + "\n"
