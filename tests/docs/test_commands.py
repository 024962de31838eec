"""Every command in the documentation runs, in the order in which it stands, on a home of its own."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from client.embedded import stop
from schemas.outcome import StopReason
from schemas.scenario import ModelEntry, UsdPrice
from schemas.secrets import SecretSource
from schemas.state import EventKind
from schemas.telemetry import Metric
from stores.settings import Deployment, Health, Settings, TelemetrySettings, read_settings
from tests.docs.commands import ROOT, blocks, pages, script
from tests.support.server import settings_of

WITH_COMMANDS = [page for page in pages() if any(block.language == "sh" for block in blocks(page))]
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
SECTIONS: dict[str, type[BaseModel]] = {
    "telemetry": TelemetrySettings,
    "health": Health,
    "deployment": Deployment,
    "secrets": SecretSource,
}


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


def printed(command: list[str], folder: Path, home: Path, seconds: int) -> str:
    """Return what a command that succeeds prints; nobody types anything into it."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_every_command_of_a_page_runs(page: str, home: Path, tmp_path: Path) -> None:
    for folder in ("scenarios", "deploy"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    printed(["bash", "-c", script(page, tmp_path)], tmp_path, home, 880)


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
    here = ROOT / page
    for name, anchor in LINK.findall(here.read_text("utf-8")):
        target = here.parent / name if name else here
        assert target.exists(), f"{page} links to {name}"
        assert not anchor or anchor in anchors(target), f"{page}: {name} has no heading {anchor}"


def anchors(page: Path) -> set[str]:
    """Return what GitHub calls the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_setting_is_explained() -> None:
    configuration = (ROOT / "docs/concepts/configuration.md").read_text("utf-8")
    assert [name for name in Settings.model_fields if f"| `{name}`" not in configuration] == []
    rows = {name: next(line for line in configuration.splitlines() if f"| `{name}`" in line) for name in SECTIONS}
    for name, section in SECTIONS.items():
        assert [field for field in section.model_fields if f"`{field}`" not in rows[name]] == [], name
    models = (ROOT / "docs/concepts/models.md").read_text("utf-8")
    assert [name for name in (*ModelEntry.model_fields, *UsdPrice.model_fields) if f"`{name}`" not in models] == []


def test_the_example_of_all_settings_is_accepted_and_leaves_none_out(tmp_path: Path) -> None:
    example = next(block.text for block in blocks("docs/concepts/configuration.md") if block.file == "config.toml")
    (tmp_path / "config.toml").write_text(example)
    settings = read_settings({"home": tmp_path}, {}, tmp_path)
    assert set(Settings.model_fields) - settings.model_fields_set == set()


def test_every_reason_and_every_kind_of_event_is_explained() -> None:
    outcomes = (ROOT / "docs/concepts/outcomes.md").read_text("utf-8")
    published = [reason.value for reason in StopReason if reason is not StopReason.UNKNOWN]
    assert [reason for reason in published if f"`{reason}`" not in outcomes] == []
    archive = (ROOT / "docs/concepts/archive.md").read_text("utf-8")
    assert [kind.value for kind in EventKind if f"`{kind.value}`" not in archive] == []


def test_every_counter_and_every_alert_is_explained() -> None:
    telemetry = (ROOT / "docs/concepts/telemetry.md").read_text("utf-8")
    assert [metric.value for metric in Metric if f"`{metric.value}_total`" not in telemetry] == []
    rules = (ROOT / "deploy/prometheus/rules.yaml").read_text("utf-8")
    operations = (ROOT / "docs/concepts/operations.md").read_text("utf-8")
    assert [name for name in re.findall(r"alert: (\w+)", rules) if name not in operations] == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    said = re.sub(r"\d+", "0", printed([sys.executable, "-m", "client.demo"], ROOT, tmp_path, 280))
    sample = next(block.text for block in blocks("README.md") if block.language == "text")
    for line in sample.splitlines():
        parts = [re.escape(part) for part in re.sub(r"\d+", "0", line).split("…")]
        assert re.search(f"^{'.*'.join(parts)}$", said, re.MULTILINE), f"the demo prints no line as: {line}"


def test_the_plain_client_of_the_readme_imports_nothing_of_ours() -> None:
    plain = next(block.text for block in blocks("README.md") if block.file == "plain.py")
    imported = set(re.findall(r"^(?:from|import) ([\w, ]+)", plain, re.MULTILINE))
    assert imported == {"asyncio, json, os, sys", "datetime import timedelta", "temporalio"}
