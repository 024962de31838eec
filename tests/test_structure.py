"""The shape of the code base: sizes, empty packages, lock files without addresses, names that nobody else takes."""

import ast
import importlib.metadata
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("schemas", "workflows", "stores", "activities", "workers", "client")
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50
LONGER_FOR_A_REASON = {
    "stores/migrations/versions/r0001_effects_and_runs.py": "a revision lists its tables, and is never edited again",
}
SOURCES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))


def tracked() -> list[str]:
    """Return the files that belong to the project."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_readable(path: Path) -> None:
    if str(path.relative_to(ROOT)) in LONGER_FOR_A_REASON:
        return
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_FILE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{node.name} has {length} lines"


def test_packages_run_no_code_at_import() -> None:
    """A parent package is imported inside the workflow sandbox; what it pulls in would be pulled in there."""
    assert [path for path in SOURCES if path.name == "__init__.py" and path.read_text().strip()] == []


def test_the_loop_fits_on_a_screen() -> None:
    tree = ast.parse((ROOT / "workflows" / "agent_task.py").read_text())
    methods = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
    lines = 0
    for name in ("run", "pursue", "loop"):
        end = methods[name].end_lineno
        assert end is not None
        lines += end - methods[name].lineno + 1
    assert lines <= 40


def test_no_other_distribution_takes_our_names() -> None:
    owners = importlib.metadata.packages_distributions()
    intruders = {name: set(owners.get(name, [])) - {"surefoot"} for name in (*PACKAGES, "tests", "bench")}
    assert {name: found for name, found in intruders.items() if found} == {}


def test_lock_files_hold_hashes_and_no_addresses() -> None:
    locks = sorted((ROOT / "requirements").glob("*.lock"))
    assert [path.name for path in locks] == ["all.lock", "core.lock", "production.lock"]
    for path in locks:
        text = path.read_text()
        assert "://" not in text
        pinned = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
        assert all("==" in line for line in pinned)
        assert text.count("--hash=sha256:") >= len(pinned)


def test_the_lock_files_agree_and_the_demo_installs_no_model_library() -> None:
    versions = {path.stem: _versions(path) for path in (ROOT / "requirements").glob("*.lock")}
    assert versions["core"].items() <= versions["production"].items() <= versions["all"].items()
    assert "litellm" in versions["production"]
    assert "litellm" not in versions["core"]


def _versions(path: Path) -> dict[str, str]:
    lines = [line.split(" ")[0] for line in path.read_text().splitlines() if "==" in line]
    return {name: version for name, _, version in (line.partition("==") for line in lines)}


def test_no_file_is_left_unfinished() -> None:
    unfinished = re.compile(r"#\s*(TODO|FIXME|XXX)|NotImplementedError")
    paths = [ROOT / name for name in tracked() if name.endswith(".py") and name != "tests/test_structure.py"]
    assert [path for path in paths if path.exists() and unfinished.search(path.read_text())] == []
