"""How soon a task goes on after SIGKILL: ``python -m bench.recovery [--json] [--kills K] [--seed S] [HEARTBEAT …]``.

Tasks side by side think, run commands and look, half a second each; their worker is killed at random instants and
started again at once. What counts is the time from the kill to each task's next new model call: one under an effect
that was not asked for before. And: how long it takes to replay the longest history that a run may have, with nothing
in memory.
"""

import argparse
import asyncio
import random
import time
from functools import partial
from statistics import median
from typing import Any

from temporalio.client import Client
from temporalio.worker import Replayer

from bench.histories import read_chain
from bench.machine import machine
from bench.report import Aim, Report, Row
from bench.setting import STEPS_OF_A_PLAN, PlayedWorker, Setting, setting
from stores.artifacts import ArtifactStore
from stores.temporal import surefoot_plugin
from tests.proof.bench import Handle, ended, happened, start
from workflows.agent_task import AgentTask

MOST_SECONDS = {5: 7.5, 2: 4.5}
"""Heartbeat time-out → the most that the median may be."""
TASKS = 3
KILLS = 6
SEED = 20260727
THINKING_SECONDS = 0.5
COMMAND = "sleep 0.5; date +%N > notes.txt"
SHORTEST_LIFE, LONGEST_LIFE = 0.2, 3.0
REPLAYED_STEPS = 70  # a few more than fit into one run of a chain
REPLAYS = 5

COLUMNS = {
    "what": "what",
    "samples": "samples",
    "median_s": "median s",
    "p90_s": "p90 s",
    "most_s": "most s",
    "restart_s": "restart s",
    "events": "events",
    "replay_ms": "replay ms",
}
NOTES = (
    "restart: the part of it until the new worker polled. replay: the longest run's history, cold, median; the worker "
    "does this once for each task that it takes over.",
)


def restarted(worker: PlayedWorker) -> tuple[float, float]:
    """Kill the worker and start it again; return when it was killed and how long the new one took to poll."""
    killed = time.time()
    worker.process.kill()
    begun = time.time()
    worker.start()
    return killed, time.time() - begun


def new_call(worker: PlayedWorker, workflow_id: str, killed: float) -> float | None:
    """Return when a task made its first call after ``killed`` under an effect not asked for before; None: not yet."""
    marks = worker.marks(f"{workflow_id}:")
    known = {mark.effect for mark in marks if mark.at <= killed}
    return next((mark.at for mark in marks if mark.at > killed and mark.effect not in known), None)


def all_went_on(worker: PlayedWorker, handles: list[Handle], killed: float) -> bool:
    """Whether every task has made a new call since ``killed``."""
    return all(new_call(worker, handle.id, killed) is not None for handle in handles)


async def kill_again_and_again(
    client: Client, where: Setting, worker: PlayedWorker, kills: int, seed: int
) -> tuple[list[float], list[float]]:
    """Return the seconds that each task took after each kill, and those that each restart took."""
    instants = random.Random(seed)
    spec = where.task(versions=100)
    handles = [await start(client, where.settings, spec) for _ in range(TASKS)]
    await happened(partial(all_went_on, worker, handles, 0.0))
    seconds, restarts = [], []
    for _ in range(kills):
        await asyncio.sleep(instants.uniform(SHORTEST_LIFE, LONGEST_LIFE))
        killed, took = await asyncio.to_thread(restarted, worker)
        await happened(partial(all_went_on, worker, handles, killed), 120)
        seconds += [(new_call(worker, handle.id, killed) or 0) - killed for handle in handles]
        restarts.append(took)
    for handle in handles:
        await handle.terminate("measured")
    return seconds, restarts


def recovery_row(heartbeat: int, seconds: list[float], restarts: list[float]) -> Row:
    """Return the figures of one heartbeat time-out."""
    ordered = sorted(seconds)
    return {
        "what": f"SIGKILL, heartbeat {heartbeat} s",
        "heartbeat_s": heartbeat,
        "samples": len(ordered),
        "median_s": round(median(ordered), 2),
        "p90_s": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))], 2),
        "most_s": round(ordered[-1], 2),
        "restart_s": round(median(restarts), 2),
        "seconds": [round(value, 2) for value in seconds],
    }


async def replay_row(client: Client, where: Setting, steps: int) -> Row:
    """Run a long task, and replay its longest run with a cold start."""
    end = await ended(await start(client, where.settings, where.task(versions=-(-steps // STEPS_OF_A_PLAN))))
    longest = max((await read_chain(client, end.handle.id)).runs, key=lambda run: run.events)
    history = await client.get_workflow_handle(end.handle.id, run_id=longest.run_id).fetch_history()
    artifacts = ArtifactStore(where.settings.artifacts_dir)
    took = []
    for _ in range(REPLAYS):
        replayer = Replayer(workflows=[AgentTask], plugins=[surefoot_plugin(artifacts)])
        begun = time.perf_counter()
        await replayer.replay_workflow(history)
        took.append((time.perf_counter() - begun) * 1000)
    return {
        "what": "cold replay",
        "samples": REPLAYS,
        "events": longest.events,
        "history_bytes": longest.history_bytes,
        "replay_ms": round(median(took), 1),
    }


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.recovery", description=__doc__)
    parser.add_argument("heartbeats", nargs="*", type=int, help=f"time-outs in s; default {tuple(MOST_SECONDS)}")
    parser.add_argument("--kills", type=int, default=KILLS, help="of the worker, for each time-out")
    parser.add_argument("--seed", type=int, default=SEED, help="chooses the instants")
    parser.add_argument("--replayed-steps", type=int, default=REPLAYED_STEPS, help="steps of the task to replay")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    flags = parser.parse_args()
    before, rows, aims = machine(), [], []
    for heartbeat in flags.heartbeats or MOST_SECONDS:
        play: dict[str, Any] = {"seconds": THINKING_SECONDS, "command": COMMAND, "heartbeat_seconds": heartbeat}
        with setting() as where, where.worker(**play) as worker:
            drill = partial(kill_again_and_again, where=where, worker=worker, kills=flags.kills, seed=flags.seed)
            row = recovery_row(heartbeat, *where.work(drill))
        rows.append(row)
        if heartbeat in MOST_SECONDS:
            aims.append(Aim(f"{row['what']}: median, s", row["median_s"], MOST_SECONDS[heartbeat]))
    with setting() as where, where.worker():
        rows.append(where.work(partial(replay_row, where=where, steps=flags.replayed_steps)))
    Report("recovery", before, rows, aims, COLUMNS, NOTES).write(flags.json)


if __name__ == "__main__":
    main()
