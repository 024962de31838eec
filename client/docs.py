"""``python -m client.docs [--check]``: write the pages of docs/ that are computed, or say which are stale."""

import difflib
import json
import sys
from pathlib import Path

from client.contract import contract
from client.pages import command_page, contract_page, scenario_page
from schemas.outcome import EXIT_BAD_INPUT, EXIT_VERIFIED

FOLDER = Path(__file__).parent.parent / "docs"
SHOWN_LINES = 20


def pages() -> dict[str, str]:
    """Return the text of every computed page by its name."""
    return {
        "contract.json": json.dumps(contract(), indent=2, ensure_ascii=False) + "\n",
        "contract.md": contract_page(),
        "cli.md": command_page(),
        "concepts/scenario.md": scenario_page(),
    }


def write(folder: Path = FOLDER) -> None:
    """Write all pages."""
    for name, text in pages().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def stale(folder: Path = FOLDER) -> dict[str, str]:
    """Return the pages that differ from the code, with the first lines of the difference."""
    found = {}
    for name, text in pages().items():
        path = folder / name
        kept = path.read_text("utf-8") if path.exists() else ""
        if kept != text:
            difference = difflib.unified_diff(kept.splitlines(), text.splitlines(), "kept", "computed", lineterm="")
            found[name] = "\n".join(list(difference)[:SHOWN_LINES])
    return found


def main() -> int:
    """Write the pages; with ``--check`` only compare them, and fail where one is stale."""
    if "--check" not in sys.argv[1:]:
        write()
        return EXIT_VERIFIED
    found = stale()
    for name, difference in found.items():
        print(f"docs/{name} is stale; run `make docs`\n{difference}", file=sys.stderr)
    return EXIT_BAD_INPUT if found else EXIT_VERIFIED


if __name__ == "__main__":
    sys.exit(main())
