"""A task in plain lines: what happened, how it stands, how it ended."""

import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.actions import ObservationStatus
from schemas.base import clip, counted
from schemas.budget import Spend
from schemas.outcome import OutcomeKind, exit_code
from schemas.plan import PlanVersion, StepStatus
from schemas.scenario import MICROUSD_PER_USD
from schemas.state import AgentState, Event, EventKind, Summary
from schemas.workspace import Workspace

if TYPE_CHECKING:
    from client.views import TaskView

STEP_MARK = {StepStatus.TODO: "○", StepStatus.DONE: "●", StepStatus.FAILED: "✗"}
EVENT_CHARACTERS = 300
ACTION_CHARACTERS = 60
NARROWEST = 40
PRETENDED = " (pretended price)"
ENDED = re.compile(rf"(.*?)(: (?:{'|'.join(ObservationStatus)})\. .*)")
PROMPTS = re.compile(r"(goal: .*) Templates: (.*)")
REHEARSED_NOTICE = (
    "REHEARSED: a script answers in place of a model, at a pretended price. Nothing here shows what a model can do."
)


def mark(ok: bool | None) -> str:
    """Return the sign of good, bad or neither."""
    return {True: "✓", False: "✗", None: "·"}[ok]


def dollars(microusd: int) -> str:
    """Return money rounded to four decimals, as ``$0.0123``."""
    return f"${microusd / MICROUSD_PER_USD:.4f}"


def spend_line(spend: Spend) -> str:
    """Return what was spent in a line."""
    calls = f"{counted(spend.model_calls, 'model call')}, {counted(spend.tool_calls, 'action')}"
    return f"{dollars(spend.microusd)}, {spend.tokens:,} tokens, {calls}"


def event_line(event: Event) -> str:
    """Return one record of a run in a line: time, sign, kind, place, text."""
    text = clip(_shortened(" ".join(event.text.split()), event.kind), EVENT_CHARACTERS)
    return f"{event.at[11:19]} {mark(event.ok)} {event.kind.value:<13} {event.place:<12} {text}"


def _shortened(text: str, kind: EventKind) -> str:
    """Cut what an observation repeats of its action, which stands before it: how it ended must be seen.

    Of the run's prompts only say how many there are; their versions are for machines, in `--json`.
    """
    prompts = PROMPTS.fullmatch(text) if kind is EventKind.SYSTEM_PROMPT else None
    if prompts:
        return f"{counted(len(prompts[2].split(', ')), 'prompt template')} frozen for this task; {prompts[1]}"
    ended = ENDED.fullmatch(text) if kind is EventKind.OBSERVATION else None
    return f"{clip(ended[1], ACTION_CHARACTERS)}{ended[2]}" if ended else text


def wrapped(line: str, columns: int) -> str:
    """Return a record's line broken at words to a terminal's width, what follows the first line below its sign."""
    return textwrap.fill(line, max(columns, NARROWEST), subsequent_indent=" " * len("00:00:00 ✓ "))


def plan_lines(plan: PlanVersion, current: str) -> Iterator[str]:
    """Return a plan version with its steps ticked; the current one is pointed at."""
    after = f", after {plan.after_step} failed" if plan.after_step else ""
    yield f"plan v{plan.version}{after}: {plan.why}"
    for step in plan.steps:
        pointer = "▸" if step.id == current and step.status is StepStatus.TODO else " "
        yield f" {pointer}{STEP_MARK[step.status]} {step.id} {step.title}"


def status_line(summary: Summary) -> str:
    """Return how a running task stands, in a line."""
    met = f"{summary.requirements_met}/{summary.requirements_total} requirements"
    label = "REHEARSED · " if summary.rehearsed else ""
    spent = spend_line(summary.spend) + (PRETENDED if summary.rehearsed else "")
    return f"{label}{summary.status} {summary.place} · {summary.now} · {met} · {spent}"


def moment(at: str) -> str:
    """Return an ISO 8601 time in UTC as people read it, to the second."""
    return f"{at[:19].replace('T', ' ')} UTC"


def standing_lines(state: AgentState) -> Iterator[str]:
    """Return what holds the task up or is asked of it."""
    if state.paused_by is not None:
        yield f"paused by {state.paused_by}"
    if state.cancel is not None:
        yield f"cancel asked by {state.cancel.by or 'unknown'}; the task will end as CANCELLED"


def requirement_lines(state: AgentState) -> Iterator[str]:
    """Return the requirements with their latest evidence."""
    for item in state.requirements:
        kind = "" if item.mandatory else " (not mandatory)"
        yield f"  {mark(item.met)} {item.id}{kind}: {item.detail or 'not checked yet'}"


def ending_lines(view: "TaskView", workspaces: Path) -> Iterator[str]:
    """Return how a task ended; its files are looked for in the folder ``workspaces`` of this home first."""
    if view.outcome is None:
        return
    yield f"outcome      {view.outcome.label}{_verified(view)}"
    if view.outcome.detail:
        yield f"reason       {view.outcome.detail}"
    if view.ended_at:
        yield f"ended        {moment(view.ended_at)}"
    if view.state:
        yield "requirements"
        yield from requirement_lines(view.state)
    evaluator = view.result.evaluator if view.result else view.row.evaluator if view.row else ()
    if evaluator:
        yield "evaluator (hidden from the agent)"
        yield from (f"  {mark(check.met)} {check.id}: {check.detail}" for check in evaluator)
    if view.state and view.state.workspace:
        yield f"files        {_files(view.state.workspace, workspaces)}"
    spend = view.state.spend if view.state else view.row.spend if view.row else None
    if spend:
        yield f"spend        {spend_line(spend)}{PRETENDED if _rehearsed(view) else ''}"
    if _rehearsed(view):
        yield f"model        {REHEARSED_NOTICE}"


def _files(workspace: Workspace, workspaces: Path) -> str:
    """Return where the files are: a home that was restored elsewhere has its own, and the state names the old one."""
    root = Path(workspace.root)
    here = workspaces / workspace.name / root.name
    if os.access(here, os.F_OK):
        return str(here)
    gone = "" if os.access(root, os.F_OK) else ", not here: on its worker's host, or removed by gc"
    return f"{root}{gone}"


def more_line(view: "TaskView") -> str:
    """Return where to look further."""
    result, row = view.result, view.row
    changed = result.difference if result else row.difference if row else None
    return f"more         surefoot show {view.id}" + (" --diff" if changed else "")


def ending_code(view: "TaskView") -> int:
    """Return the exit code that tells how a task ended."""
    if view.outcome is None:
        raise ValueError(f"{view.id} has not ended")
    return exit_code(view.outcome)


def _verified(view: "TaskView") -> str:
    if view.outcome is None or view.outcome.kind is not OutcomeKind.FINISHED:
        return ""  # what did not finish was not verified, whatever some check of the evaluator says
    verified = view.outcome.verified
    return {True: ", verified by the evaluator", False: ", but the evaluator says no", None: ""}[verified]


def _rehearsed(view: "TaskView") -> bool:
    return bool(view.result and view.result.summary.rehearsed)
