"""How long an iteration takes when the model is slow: ``python -m bench.latency [--json] [--seconds S] [PROPOSALS …]``.

The model takes the same time for every reply, so the critical path of the graph and the sum of all its calls can be
counted: calls of one level run side by side. Wall time of an iteration is from its first call to the next iteration's,
by the server's clock. Steps take one or two iterations in turn: at the head of a second one nobody is asked whether
the step is done, since the frame has been judged already.
"""

import argparse
from collections import Counter
from functools import partial
from itertools import pairwise
from statistics import median

from temporalio.client import Client

from bench.histories import Call, read_chain
from bench.machine import machine
from bench.report import Aim, Report, Row
from bench.setting import Setting, setting
from schemas.models import Node
from tests.proof.bench import ended, start

PROPOSALS = (1, 2)
STEPS = 4
JUDGEMENTS = (False, True, True)  # by turns a step of two iterations and a step of one
MODEL_SECONDS = 1.0
LEVELS = (
    (Node.IS_STEP_DONE,),
    (Node.PROPOSE_ACTION,),
    (Node.SUMMARIZE_ACTIONS, Node.VALIDATE_PLAN_STEP),
    (Node.IS_STEP_DONE_BY_VALIDATION, Node.SUMMARIZE_PLAN_STEP),
)
"""The graph of design.md: levels follow one another, the calls of a level run side by side."""
MOST_WALL_TO_PATH = 1.1
MOST_PATH_TO_SUM = 0.7

COLUMNS = {
    "iteration": "iteration",
    "proposals": "proposals",
    "model_calls": "model calls",
    "other_calls": "other calls",
    "path_s": "critical path s",
    "sum_s": "sum s",
    "wall_s": "wall s",
    "wall_to_path": "wall/path",
    "path_to_sum": "path/sum",
    "wall_to_sum": "wall/sum",
}
NOTES = (
    "not done: asked whether the step is done, judged not done. done later: not asked again, judged done, confirmed, "
    "summarized.\ndone at once: asked, judged done, confirmed, summarized. Wall times are medians.",
)


def path_and_sum(names: Counter[str]) -> tuple[int, int]:
    """Return how many model calls follow one another by the graph, and how many there are."""
    path = sum(max(names[node.value] for node in level) for level in LEVELS)
    return path, sum(names[node.value] for level in LEVELS for node in level)


def iterations_of(calls: list[Call]) -> list[list[Call]]:
    """Return the calls of each iteration; calls without a place belong to the one before them."""
    found: dict[str, list[Call]] = {}
    place = ""
    for call in calls:
        place = call.place or place
        if ".i" in place:
            found.setdefault(place, []).append(call)
    return list(found.values())


def kind_of(names: Counter[str]) -> str:
    """Return which way through the graph an iteration took."""
    if not names[Node.IS_STEP_DONE_BY_VALIDATION.value]:
        return "not done"
    return "done at once" if names[Node.IS_STEP_DONE.value] else "done later"


def row_of(kind: str, proposals: int, names: Counter[str], walls: list[float], seconds: float) -> Row:
    """Return the figures of the iterations that took the same way through the graph."""
    path, total = path_and_sum(names)
    wall = median(walls)
    return {
        "iteration": kind,
        "proposals": proposals,
        "samples": len(walls),
        "model_calls": total,
        "other_calls": names.total() - total,
        "path_s": path * seconds,
        "sum_s": total * seconds,
        "wall_s": round(wall, 3),
        "wall_to_path": round(wall / (path * seconds), 3),
        "path_to_sum": round(path / total, 3),
        "wall_to_sum": round(wall / (total * seconds), 3),
    }


async def measure(client: Client, where: Setting, proposals: int, seconds: float) -> list[Row]:
    """Run one task to its end and return a row for each way through the graph."""
    end = await ended(await start(client, where.settings, where.task(versions=1)))
    iterations = iterations_of((await read_chain(client, end.handle.id)).calls)
    walls: dict[str, list[float]] = {}
    calls: dict[str, Counter[str]] = {}
    for iteration, after in pairwise(iterations):  # the last one has nothing after it to end at
        names = Counter(call.name for call in iteration)
        kind = kind_of(names)
        walls.setdefault(kind, []).append(after[0].at - iteration[0].at)
        calls[kind] = names
    return [row_of(kind, proposals, calls[kind], walls[kind], seconds) for kind in walls]


def aims_of(row: Row) -> list[Aim]:
    """Return what the issue asks of an iteration; path to sum only of one that uses the whole graph."""
    which = f"{row['iteration']}, {row['proposals']} proposals"
    wall = Aim(f"{which}: wall to critical path", row["wall_to_path"], MOST_WALL_TO_PATH)
    if row["iteration"] == "not done":
        return [wall]
    return [wall, Aim(f"{which}: critical path to sum", row["path_to_sum"], MOST_PATH_TO_SUM)]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.latency", description=__doc__)
    parser.add_argument("proposals", nargs="*", type=int, help=f"in an iteration; default {PROPOSALS}")
    parser.add_argument("--seconds", type=float, default=MODEL_SECONDS, help="time that the model takes for a reply")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    flags = parser.parse_args()
    before, rows = machine(), []
    with setting() as where:
        for proposals in flags.proposals or PROPOSALS:
            with where.worker(
                f"{proposals}", seconds=flags.seconds, proposals=proposals, judgements=JUDGEMENTS, steps=STEPS
            ):
                rows += where.work(partial(measure, where=where, proposals=proposals, seconds=flags.seconds))
    aims = [aim for row in rows for aim in aims_of(row)]
    Report("latency", before, rows, aims, COLUMNS, NOTES).write(flags.json)


if __name__ == "__main__":
    main()
