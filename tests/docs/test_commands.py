"""Every command in the documentation runs, in the order in which it stands, on a home of its own."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from client.embedded import stop
from schemas.outcome import StopReason
from stores.settings import Settings
from tests.docs.commands import ROOT, blocks, pages, script
from tests.support.server import settings_of

WITH_COMMANDS = [page for page in pages() if any(block.language == "sh" for block in blocks(page))]
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home that all pages share, so that each need not start a server of its own."""
    folder = tmp_path_factory.mktemp("home")
    yield folder
    stop(settings_of(folder))


def environment(home: Path) -> dict[str, str]:
    """Return this process's environment, with nothing configured but the home."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SUREFOOT_", "TEMPORAL_"))}
    return {**kept, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "SUREFOOT_HOME": str(home)}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_every_command_of_a_page_runs(page: str, home: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    done = subprocess.run(
        ["bash", "-c", script(page, tmp_path)],
        cwd=tmp_path,
        env=environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_what_is_not_run_says_why_and_what_is_run_is_shell(page: str) -> None:
    for block in blocks(page):
        assert block.language, f"{page}:{block.line} names no language"
        assert block.language != "bash", f"{page}:{block.line}: write sh, or it is not run"
        if block.language == "sh":
            syntax = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True, check=False)
            assert syntax.returncode == 0, f"{page}:{block.line}: {syntax.stderr}"


@pytest.mark.parametrize("page", pages())
def test_links_inside_the_project_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    gone = [name for name in LINK.findall(text) if not (ROOT / page).parent.joinpath(name).exists()]
    assert gone == []


def test_every_setting_and_every_reason_is_explained() -> None:
    configuration = (ROOT / "docs/concepts/configuration.md").read_text("utf-8")
    assert [name for name in Settings.model_fields if f"| `{name}`" not in configuration] == []
    outcomes = (ROOT / "docs/concepts/outcomes.md").read_text("utf-8")
    published = [reason.value for reason in StopReason if reason is not StopReason.UNKNOWN]
    assert [reason for reason in published if f"`{reason}`" not in outcomes] == []


def test_the_plain_client_of_the_readme_imports_nothing_of_ours() -> None:
    plain = next(block.text for block in blocks("README.md") if block.file == "plain.py")
    imported = set(re.findall(r"^(?:from|import) ([\w, ]+)", plain, re.MULTILINE))
    assert imported == {"asyncio, json, sys", "temporalio"}
