"""The versions of a task's plan, and what changed from one to the next."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Any

from client import lines
from client.events import events_of
from client.session import Records, with_records
from client.streams import say
from schemas.base import rebuild
from schemas.outcome import EXIT_VERIFIED
from schemas.plan import PlanVersion, Step, StepStatus
from schemas.state import AgentState, Event, EventKind
from stores.settings import Settings

ALIKE = 0.6  # share of two titles from which on the one counts as the other, reworded


class ChangeKind(StrEnum):
    """What became of a step from one version to the next."""

    DONE = "done"
    """Done in the version before, and carried along."""
    FAILED = "failed"
    """Could not be done in the version before."""
    DROPPED = "dropped"
    """Not tried any more."""
    KEPT = "kept"
    """To be done as before."""
    REWORDED = "reworded"
    """To be done under another title or instruction."""
    ADDED = "added"
    """New."""


SIGNS = {
    ChangeKind.DONE: "●",
    ChangeKind.FAILED: "✗",
    ChangeKind.DROPPED: "-",
    ChangeKind.KEPT: "=",
    ChangeKind.REWORDED: "~",
    ChangeKind.ADDED: "+",
}


@dataclass(frozen=True)
class Change:
    """What became of one step."""

    kind: ChangeKind
    """What."""
    before: Step | None = None
    """The step in the version before."""
    after: Step | None = None
    """The step in this version."""


def plans(settings: Settings, task_id: str, diff: bool, as_json: bool) -> int:
    """Print every version of a task's plan; with ``diff`` what changed and why."""

    async def work(records: Records) -> int:
        view = await records.tasks.look(task_id)
        found = await asyncio.to_thread(events_of, view, records.archive)
        for problem in found.missing:
            say(problem)
        versions = versions_of(found.events, view.state)
        if not versions:
            say(why_none(view.ended, not found.missing))
        if as_json:
            print("".join(f"{json.dumps(item, ensure_ascii=False)}\n" for item in _as_json(versions, diff)), end="")
        else:
            print("".join(f"{line}\n" for line in _lines(versions, diff, found.events)), end="")
        return EXIT_VERIFIED

    return with_records(settings, work)


def why_none(ended: bool, all_known: bool) -> str:
    """Return why there is no version to print of a task; ``all_known`` says whether all its events could be read."""
    if not all_known:
        return "no plan is known"
    return "the task has ended without a plan" if ended else "there is no plan yet"


def versions_of(events: Iterable[Event], state: AgentState | None = None) -> tuple[PlanVersion, ...]:
    """Return the versions of the plan as they were written, each step with what became of it.

    The events tell of all versions, the state only of the latest; where events are lost, its word is taken.
    """
    versions: dict[int, PlanVersion] = {}
    done: set[str] = set()
    for event in events:
        if event.plan is not None:
            versions[event.plan.version] = event.plan
        elif event.kind is EventKind.STATE_CHANGE and event.ok:
            done.add(event.place)
    for plan in state.plans if state else ():
        own = tuple(step for step in plan.steps if step.done_as in (None, step.id))
        versions[plan.version] = rebuild(plan, steps=own)
    failed = {plan.after_step for plan in versions.values()}
    return tuple(_as_it_went(versions[number], done, failed) for number in sorted(versions))


def changes(before: PlanVersion, after: PlanVersion) -> tuple[Change, ...]:
    """Return what became of each step of ``before``, and then what is new in ``after``."""
    partners = dict(_partners(before, after))
    found: list[Change] = []
    for step in before.steps:
        new = partners.get(step.id)
        if step.status is StepStatus.DONE:
            found.append(Change(ChangeKind.DONE, step))
        elif step.status is StepStatus.FAILED:
            found.append(Change(ChangeKind.FAILED, step, new))
        elif new is None:
            found.append(Change(ChangeKind.DROPPED, step))
        else:
            same = (new.title, new.instruction) == (step.title, step.instruction)
            found.append(Change(ChangeKind.KEPT if same else ChangeKind.REWORDED, step, new))
    taken = {new.id for new in partners.values()}
    return (*found, *(Change(ChangeKind.ADDED, after=step) for step in after.steps if step.id not in taken))


def _partners(before: PlanVersion, after: PlanVersion) -> Iterator[tuple[str, Step]]:
    """Yield the id of a step of ``before`` that is still to do, with the step of ``after`` that does it."""
    open_steps = [step for step in before.steps if step.status is not StepStatus.DONE]
    scored = [(_likeness(old, new), old.id, new) for old in open_steps for new in after.steps]
    paired: set[str] = set()
    for score, old_id, new in sorted(scored, key=lambda item: -item[0]):
        if score >= ALIKE and old_id not in paired and new.id not in paired:
            paired |= {old_id, new.id}
            yield old_id, new


def _likeness(old: Step, new: Step) -> float:
    if old.title == new.title or (old.instruction is not None and old.instruction == new.instruction):
        return 1.0
    return SequenceMatcher(None, old.title, new.title).ratio()


def _as_it_went(plan: PlanVersion, done: set[str], failed: set[str | None]) -> PlanVersion:
    steps = []
    for step in plan.steps:
        if step.status is StepStatus.TODO and step.id in done:
            step = rebuild(step, status=StepStatus.DONE, done_as=step.id)
        elif step.status is StepStatus.TODO and step.id in failed:
            step = rebuild(step, status=StepStatus.FAILED)
        steps.append(step)
    return rebuild(plan, steps=tuple(steps))


def _lines(versions: Sequence[PlanVersion], diff: bool, events: Iterable[Event]) -> Iterator[str]:
    before: PlanVersion | None = None
    for plan in versions:
        yield from lines.plan_lines(plan, "")
        if plan.learned:
            yield f"   replanned because {plan.learned}"
        if diff and before is not None:
            yield f"   from v{before.version} to v{plan.version}"
            yield from (f"   {_change_line(change)}" for change in changes(before, plan))
        before = plan
    for event in events:
        if event.kind is EventKind.PLAN_VERSION and event.plan is None:
            yield f"{event.at[11:19]} {event.place}: {event.text}"


def _change_line(change: Change) -> str:
    old, new = change.before, change.after
    what = f"{SIGNS[change.kind]} {change.kind.value:<8}"
    if old is None or new is None:
        step = old or new
        return f"{what} {step.id} {step.title}" if step else what
    title = new.title if new.title == old.title else f"{old.title} → {new.title}"
    return f"{what} {old.id} → {new.id} {title}"


def _as_json(versions: Sequence[PlanVersion], diff: bool) -> Iterator[dict[str, Any]]:
    before: PlanVersion | None = None
    for plan in versions:
        value = plan.model_dump(mode="json")
        if diff:
            found = changes(before, plan) if before else ()
            value["changes"] = [
                {
                    "change": change.kind.value,
                    "before": change.before.id if change.before else None,
                    "after": change.after.id if change.after else None,
                }
                for change in found
            ]
        yield value
        before = plan
