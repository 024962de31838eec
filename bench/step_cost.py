"""What a step costs: ``python -m bench.step_cost [--json] [--rounds R] [STEPS …]``.

A task of so many steps with a model that answers at once, and right after it a bare Temporal workflow with the very
same calls on the same server, in turns. A step is one iteration: it is asked whether it is done, proposes one action,
performs it, takes a frame, runs the checks, is validated, confirmed and summarized: nine calls. Wall and CPU time are
taken from the first step's beginning to the last one's.
"""

import argparse
import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import mean, median

from temporalio.client import Client

from bench.bare import QUEUE, WORKSPACE_QUEUE, BareTask, Shape
from bench.histories import Chain, read_chain
from bench.machine import machine
from bench.marks import Mark
from bench.report import Aim, Report, Row, sparkline
from bench.setting import STEPS_OF_A_PLAN, PlayedWorker, Setting, setting, start_bare
from schemas.contract import Role, all_refs
from schemas.models import Node
from schemas.outcome import StopReason
from schemas.task import TaskSpec
from tests.proof.bench import ended, start

SIZES = (50, 200, 1000)
LONG_STEPS = 100
STEP_BEGINS = Node.IS_STEP_DONE.value
PATIENCE_SECONDS = 1800
LONG_TEXT = "足元を確かめてから次の一歩を踏み出す。" * 1000  # three bytes each: 57 kB
LONG_FILE = "".join(f"line {number}: what somebody has noted here some day\n" for number in range(2000))

MOST_LAST_TO_FIRST = 1.3
MOST_WALL_TO_BARE = 1.6
MOST_CPU_OVER_BARE_MS = 4.0
MOST_EVENTS = 6.5
MOST_BYTES = 2000

COLUMNS = {
    "steps": "steps",
    "texts": "texts",
    "calls": "calls",
    "wall_ms": "ms a call",
    "bare_wall_ms": "bare",
    "wall_to_bare": "ratio",
    "worker_cpu_ms": "worker CPU",
    "bare_worker_cpu_ms": "bare",
    "server_cpu_ms": "server CPU",
    "bare_server_cpu_ms": "bare",
    "last_to_first": "last/first",
    "events_per_call": "events",
    "bytes_per_call": "bytes",
    "runs": "runs",
    "shape": "tenths",
}
NOTES = (
    "Times are milliseconds a call. last/first: the last tenth of the steps to the first, by wall time; tenths: each "
    "tenth's, from zero.\nevents, bytes: history in all, inputs of the runs included, for each call.",
)


@dataclass(frozen=True)
class Cost:
    """What one run of a task, or of the bare workflow, cost, in milliseconds a call."""

    wall: float
    worker_cpu: float
    server_cpu: float
    tenths: tuple[float, ...]
    """Wall time of a step in each tenth of the run."""

    @property
    def last_to_first(self) -> float:
        """How much slower the last tenth was than the first."""
        return self.tenths[-1] / self.tenths[0]


def cost_of(marks: list[Mark], chain: Chain) -> Cost:
    """Return the costs between the first and the last beginning of a step."""
    first, last = marks[0], marks[-1]
    names = [call.name for call in chain.calls]
    begins = [index for index, name in enumerate(names) if name == STEP_BEGINS]
    calls = begins[-1] - begins[0]
    steps = [(after.at - before.at) * 1000 for before, after in pairwise(marks)]
    size = max(1, len(steps) // 10)
    return Cost(
        wall=(last.at - first.at) * 1000 / calls,
        worker_cpu=(last.worker_cpu - first.worker_cpu) * 1000 / calls,
        server_cpu=(last.server_cpu - first.server_cpu) * 1000 / calls,
        tenths=tuple(mean(steps[begin : begin + size]) for begin in range(0, len(steps) - size + 1, size)),
    )


@dataclass(frozen=True)
class Round:
    """One run of the task, and one of the bare workflow right after it."""

    chain: Chain
    own: Cost
    bare: Cost


async def measure(client: Client, where: Setting, workers: tuple[PlayedWorker, PlayedWorker], spec: TaskSpec) -> Round:
    """Run both once."""
    own, bare = workers
    end = await ended(await start(client, where.settings, spec), PATIENCE_SECONDS)
    assert end.outcome.reason is StopReason.MAX_PLAN_VERSIONS, end.outcome
    chain = await read_chain(client, end.handle.id)
    bare_id = await start_bare(client, bare_task(chain, spec.caps.events), QUEUE)
    bare_chain = await read_chain(client, bare_id)
    assert [call.name for call in bare_chain.calls] == [call.name for group in chain.groups() for call in group]
    return Round(chain, cost_of(own.marks(end.handle.id), chain), cost_of(bare.marks(bare_id), bare_chain))


def bare_task(chain: Chain, cap_events: int) -> BareTask:
    """Return the calls of a recorded task; sizes are means over all calls of a name."""
    classes = {ref.name: ref.cls for ref in all_refs()}
    names = sorted({call.name for call in chain.calls})
    shapes = []
    for name in names:
        calls = [call for call in chain.calls if call.name == name]
        cls = classes[name]
        shapes.append(
            Shape(
                name=name,
                queue=QUEUE if cls.role is Role.HOME else WORKSPACE_QUEUE,
                request_bytes=round(mean(len(call.request) for call in calls)),
                reply_bytes=round(mean(call.reply_bytes for call in calls)),
                seconds=cls.start_to_close_seconds,
                heartbeat_seconds=cls.heartbeat_seconds,
            )
        )
    groups = [[names.index(call.name) for call in group] for group in chain.groups()]
    return BareTask(shapes, groups, cap_events)


def row_of(steps: int, texts: str, rounds: list[Round]) -> Row:
    """Return the medians of the rounds; ratios and differences are taken within a round."""

    def middle(*values: float) -> float:
        return round(median(values), 2)

    tenths = [median(item) for item in zip(*(one.own.tenths for one in rounds), strict=True)]
    return {
        "steps": steps,
        "texts": texts,
        "rounds": len(rounds),
        "calls": len(rounds[0].chain.calls),
        "runs": len(rounds[0].chain.runs),
        "wall_ms": middle(*(one.own.wall for one in rounds)),
        "bare_wall_ms": middle(*(one.bare.wall for one in rounds)),
        "wall_to_bare": middle(*(one.own.wall / one.bare.wall for one in rounds)),
        "worker_cpu_ms": middle(*(one.own.worker_cpu for one in rounds)),
        "bare_worker_cpu_ms": middle(*(one.bare.worker_cpu for one in rounds)),
        "worker_cpu_over_bare_ms": middle(*(one.own.worker_cpu - one.bare.worker_cpu for one in rounds)),
        "server_cpu_ms": middle(*(one.own.server_cpu for one in rounds)),
        "bare_server_cpu_ms": middle(*(one.bare.server_cpu for one in rounds)),
        "last_to_first": middle(*(one.own.last_to_first for one in rounds)),
        "bare_last_to_first": middle(*(one.bare.last_to_first for one in rounds)),
        "events_per_call": middle(*(one.chain.events_per_call for one in rounds)),
        "bytes_per_call": middle(*(one.chain.bytes_per_call for one in rounds)),
        "tenths_ms": [round(value, 1) for value in tenths],
        "shape": sparkline(tenths),
    }


def aims_of(row: Row) -> list[Aim]:
    """Return what the issue asks of one size; with long texts only history is judged."""
    which = f"{row['steps']:,} steps, {row['texts']} texts"
    history = [
        Aim(f"{which}: events a call", row["events_per_call"], MOST_EVENTS),
        Aim(f"{which}: bytes of history a call", row["bytes_per_call"], MOST_BYTES),
    ]
    if row["texts"] == "long":
        return history
    return [
        Aim(f"{which}: last tenth to first", row["last_to_first"], MOST_LAST_TO_FIRST),
        Aim(f"{which}: wall to bare", row["wall_to_bare"], MOST_WALL_TO_BARE),
        Aim(f"{which}: own worker CPU over bare, ms a call", row["worker_cpu_over_bare_ms"], MOST_CPU_OVER_BARE_MS),
        *history,
    ]


def specs_of(where: Setting, sizes: list[int], long_steps: int) -> list[tuple[int, str, TaskSpec]]:
    """Return the tasks: each size with texts of usual length, and one with texts as long as they may be."""
    tasks = [(size, "usual", where.task(math.ceil(size / STEPS_OF_A_PLAN))) for size in sizes]
    if long_steps:
        usual = where.task(math.ceil(long_steps / STEPS_OF_A_PLAN))
        workspace = usual.workspace.model_copy(update={"files": {"long.txt": LONG_FILE}})
        changes = {"goal": LONG_TEXT, "instructions": LONG_TEXT, "workspace": workspace}
        tasks.append((long_steps, "long", where.task(usual.bounds.max_plan_versions, **changes)))
    return tasks


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.step_cost", description=__doc__)
    parser.add_argument("steps", nargs="*", type=int, help=f"sizes; default {' '.join(map(str, SIZES))}")
    parser.add_argument("--long", type=int, default=LONG_STEPS, help="steps with long texts; 0 leaves them out")
    parser.add_argument("--rounds", type=int, help="rounds of each size; default: more of the small ones")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    flags = parser.parse_args()
    before, rows = machine(), []
    with (
        setting() as where,
        where.worker(marked=(STEP_BEGINS,)) as own,
        where.worker("bare", "bench.bare_worker", marked=(STEP_BEGINS,)) as bare,
    ):
        for steps, texts, spec in specs_of(where, flags.steps or list(SIZES), flags.long):
            rounds = flags.rounds or max(1, min(3, 300 // steps))
            once = partial(measure, where=where, workers=(own, bare), spec=spec)
            rows.append(row_of(steps, texts, [where.work(once) for _ in range(rounds)]))
    aims = [aim for row in rows for aim in aims_of(row)]
    Report("step_cost", before, rows, aims, COLUMNS, NOTES).write(flags.json)


if __name__ == "__main__":
    main()
