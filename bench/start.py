"""How soon something happens, and what it holds: ``python -m bench.start [--json] [ROUNDS]``.

CPU time of ``surefoot --help``; wall time of ``surefoot run`` in an empty home, from the command to the first activity
that a worker takes; resident memory of every process when that task has ended.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from temporalio.api.enums.v1 import EventType

from bench.machine import machine, memory_mb
from bench.report import Aim, Report, Row
from stores.running import SERVER_FILE, SUPERVISOR_FILE, ServerRecord, SupervisorRecord, read_record
from stores.settings import PREFIX, Settings
from tests.support.server import client_of, settings_of

ROUNDS = 5
SCENARIO = Path(__file__).parent.parent / "scenarios" / "hello-file.yaml"
MOST_HELP_CPU_SECONDS = 0.25
MOST_RUN_SECONDS = 5.0

COLUMNS = {"what": "what", "samples": "samples", "cpu_s": "CPU s", "wall_s": "wall s", "memory_mb": "memory MB"}
NOTES = (
    "run: from the command to the first activity, in an empty home; its CPU is the command's own. Memory is resident, "
    "shared pages\nin full; of the command the most that it ever held. The worker has not loaded LiteLLM: only a "
    "real model's first request does that.",
)


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    output: str
    began: float
    """Seconds since the epoch."""
    wall: float
    cpu: float
    memory_mb: float
    """The most that it ever held."""


def command(*arguments: str, home: Path) -> Done:
    """Run ``surefoot`` with nothing of this machine's configuration; raises CalledProcessError."""
    program = [str(Path(sys.executable).with_name("surefoot")), *arguments]
    environ = {name: value for name, value in os.environ.items() if not name.startswith((PREFIX, "TEMPORAL_"))}
    began = time.time()
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**environ, f"{PREFIX}HOME": str(home)}
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read().decode()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, program, output)
    wall = time.time() - began
    return Done(output, began, wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6)


async def first_activity(settings: Settings, task_id: str) -> float:
    """Return when a worker took the first activity of a task, by the server's clock."""
    client = await client_of(settings)
    async for event in client.get_workflow_handle(task_id).fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            return event.event_time.ToNanoseconds() / 1e9
    raise AssertionError(f"{task_id} has ended without an activity")


def run_from_nothing(home: Path) -> tuple[Done, float, dict[str, float]]:
    """Return the ended ``run``, the seconds to its first activity, and the memory of what it has left running."""
    settings = settings_of(home)
    try:
        done = command("run", str(SCENARIO), "--json", home=home)
        task_id = json.loads(done.output.splitlines()[0])["id"]
        began = asyncio.run(first_activity(settings, task_id)) - done.began
        server = read_record(settings.run_dir / SERVER_FILE, ServerRecord)
        supervisor = read_record(settings.run_dir / SUPERVISOR_FILE, SupervisorRecord)
        assert server is not None, "the server keeps running"
        assert supervisor is not None, "the supervisor keeps running"
        assert supervisor.worker is not None, "a run keeps a worker"
        pids = {"server": server.process.pid, "supervisor": supervisor.process.pid, "worker": supervisor.worker.pid}
        return done, began, {name: memory_mb(pid) for name, pid in pids.items()}
    finally:
        command("down", home=home)


def measure(rounds: int) -> list[Row]:
    """Measure everything so many times."""
    helps, runs = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="surefoot-bench-") as home:
            helps.append(command("--help", home=Path(home)))
            runs.append(run_from_nothing(Path(home)))

    def row(what: str, **figures: list[float]) -> Row:
        return {"what": what, "samples": rounds, **{name: round(median(of), 3) for name, of in figures.items()}}

    commands = [done for done, _, _ in runs]
    return [
        row(
            "surefoot --help",
            cpu_s=[done.cpu for done in helps],
            wall_s=[done.wall for done in helps],
            memory_mb=[done.memory_mb for done in helps],
        ),
        row(
            "surefoot run",
            cpu_s=[done.cpu for done in commands],
            wall_s=[began for _, began, _ in runs],
            memory_mb=[done.memory_mb for done in commands],
        ),
        *(row(name, memory_mb=[memory[name] for _, _, memory in runs]) for name in runs[0][2]),
    ]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.start", description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=ROUNDS, help="medians are over so many")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    flags = parser.parse_args()
    before, rows = machine(), measure(flags.rounds)
    aims = [
        Aim("surefoot --help: CPU s", rows[0]["cpu_s"], MOST_HELP_CPU_SECONDS),
        Aim("surefoot run: s to the first activity", rows[1]["wall_s"], MOST_RUN_SECONDS),
    ]
    Report("start", before, rows, aims, COLUMNS, NOTES).write(flags.json)


if __name__ == "__main__":
    main()
