"""Every bench runs at its smallest size and says what it should; what it measures is no test's business."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent


def bench(name: str, *arguments: str) -> dict[str, Any]:
    """Return what a bench reports."""
    command = [sys.executable, "-m", f"bench.{name}", "--json", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["bench"] == name
    assert report["machine"]["state"] in ("quiet", "busy")
    assert all(aim["met"] is (aim["value"] <= aim["most"]) for aim in report["aims"])
    return report


def test_what_a_step_costs() -> None:
    report = bench("step_cost", "10", "--rounds", "1", "--long", "0")
    (row,) = report["rows"]
    assert (row["steps"], row["runs"]) == (10, 1)
    assert 9 * 10 < row["calls"] < 9 * 10 + 20  # and what opens, plans, archives and closes
    for name in ("wall_ms", "worker_cpu_ms", "server_cpu_ms", "bare_wall_ms", "bare_worker_cpu_ms"):
        assert row[name] > 0, name
    assert 5 < row["events_per_call"] < 8
    assert row["bytes_per_call"] > 500
    assert len(row["tenths_ms"]) == 9
    assert len(report["aims"]) == 5


def test_how_long_an_iteration_takes() -> None:
    report = bench("latency", "1", "--seconds", "0.1")
    rows = {row["iteration"]: row for row in report["rows"]}
    counted = {kind: (row["model_calls"], row["path_s"]) for kind, row in rows.items()}
    assert counted == {
        "not done": (4, pytest.approx(0.3)),
        "done later": (5, pytest.approx(0.3)),
        "done at once": (6, pytest.approx(0.4)),
    }
    for row in rows.values():
        assert row["path_s"] <= row["wall_s"]
        assert row["other_calls"] == 3
    assert len(report["aims"]) == 5


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_how_soon_a_task_goes_on() -> None:
    report = bench("recovery", "2", "--kills", "1", "--replayed-steps", "10")
    killed, replayed = report["rows"]
    assert (killed["heartbeat_s"], killed["samples"], len(killed["seconds"])) == (2, 3, 3)
    assert killed["restart_s"] < killed["median_s"]
    assert replayed["events"] > 400
    assert replayed["replay_ms"] > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_how_soon_something_happens() -> None:
    report = bench("start", "1")
    rows = {row["what"]: row for row in report["rows"]}
    assert list(rows) == ["surefoot --help", "surefoot run", "server", "supervisor", "worker"]
    assert 0 < rows["surefoot --help"]["cpu_s"] < rows["surefoot run"]["cpu_s"]
    assert rows["surefoot run"]["wall_s"] > 0
    assert all(row["memory_mb"] > 10 for row in rows.values())
