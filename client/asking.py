"""The command that shows all of one task."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

from client import lines, live
from client.events import events_of
from client.session import Records, with_records
from client.streams import say
from client.tasks import LEDGER_AWAY
from client.views import TaskView, without_ledger
from schemas.base import counted
from schemas.errors import ArtifactMissing
from schemas.outcome import EXIT_VERIFIED
from schemas.state import AgentState, Event
from schemas.texts import TextRef
from stores.artifacts import ArtifactStore
from stores.records import EffectRow
from stores.settings import Settings

SHOWN_EFFECTS = 30
EXCERPT_LINES = 12


def show(settings: Settings, task_id: str, events: int, diff: bool, as_json: bool) -> int:
    """Print everything about one task."""

    async def work(records: Records) -> int:
        view = await records.tasks.look(task_id)
        effects = await _effects(records, view)
        kept = await asyncio.to_thread(events_of, view, records.archive)
        newest = kept.events[-events:] if events else ()
        for problem in kept.missing:
            say(problem)
        if as_json:
            difference = _difference(view, records.artifacts) if diff else None
            print(json.dumps(_as_json(view, effects, newest, difference)))
        else:
            print("\n".join(_show_lines(records, view, effects, newest)))
            if view.ended and not diff and _difference(view, records.artifacts):
                print(lines.more_line(view))
            if diff:
                print("\ndifference of the workspace")
                print(_difference(view, records.artifacts) or "  none recorded")
        return EXIT_VERIFIED

    return with_records(settings, work)


async def _effects(records: Records, view: TaskView) -> Sequence[EffectRow] | None:
    """Return the chain's effects; None, which is said, where the ledger cannot be read."""
    try:
        return await asyncio.to_thread(records.tasks.effects, view.first_run_id)
    except LEDGER_AWAY as error:
        say(without_ledger("the list of effects", error))
        return None


def _as_json(
    view: TaskView, effects: Sequence[EffectRow] | None, events: Sequence[Event], difference: str | None
) -> dict[str, Any]:
    state = view.state.model_dump(mode="json", exclude={"events"}) if view.state else None
    return {
        **live.ending_json(view),
        "ended": view.ended,
        "run_id": view.run_id,
        "first_run_id": view.first_run_id,
        "summary": view.summary.model_dump(mode="json") if view.summary else None,
        "state": state,
        "events": [event.model_dump(mode="json") for event in events],
        "effects": None if effects is None else [effect.model_dump(mode="json") for effect in effects],
        "retrying": list(view.retrying),
        "difference": difference,
        "note": "; ".join(note for note in (view.why_not, view.note) if note),
    }


def _show_lines(
    records: Records, view: TaskView, effects: Sequence[EffectRow] | None, events: Sequence[Event]
) -> Iterator[str]:
    yield f"task         {view.id}"
    yield f"run          {view.run_id}" + ("" if view.run_id == view.first_run_id else f", chain {view.first_run_id}")
    for note in (view.why_not, view.note):
        if note:
            yield f"note         {note}"
    name = view.summary.name if view.summary else view.row.name if view.row else ""
    if name:
        yield f"name         {name}"
    if view.summary and not view.ended:
        yield f"status       {lines.status_line(view.summary)}"
    for call in view.retrying:
        yield f"!            {call}"
    if view.state:
        yield from _state_lines(view.state, records.artifacts, view.ended)
    yield from _effect_lines(effects or ())
    if events:
        yield f"last {counted(len(events), 'event')}; `surefoot events {view.id}` has all"
        yield from (f"  {lines.event_line(event)}" for event in events)
    if view.ended:
        yield from lines.ending_lines(view, records.settings.workspaces_dir)


def _state_lines(state: AgentState, artifacts: ArtifactStore, ended: bool) -> Iterator[str]:
    yield f"started      {lines.moment(state.started_at)}"
    if state.goal:
        yield "goal"
        yield from _text(artifacts, state.goal)
    for plan in state.plans:
        yield from lines.plan_lines(plan, "")
        for step in plan.steps:
            if step.summary:
                yield f"    {step.id}:"
                yield from _text(artifacts, step.summary)
    if ended:
        return
    yield "requirements"
    for line, item in zip(lines.requirement_lines(state), state.requirements, strict=True):
        yield line
        if item.output and not item.met:
            yield from _text(artifacts, item.output)
    for observation in state.observations[-3:]:
        yield f"{observation.id} {observation.tool} {observation.preview}: {observation.status.value}"
        if observation.excerpt:
            yield from _text(artifacts, observation.excerpt)
    yield from lines.standing_lines(state)
    yield f"spend        {lines.spend_line(state.spend)}"


def _effect_lines(rows: Sequence[EffectRow]) -> Iterator[str]:
    if not rows:
        return
    yield f"effects      {len(rows)} in the ledger" + (", the last ones:" if len(rows) > SHOWN_EFFECTS else "")
    for row in rows[-SHOWN_EFFECTS:]:
        seq = row.effect_id.rpartition(":")[2]
        claims = f"claimed {row.fence} times" if row.fence > 1 else ""
        cost = f"{lines.dollars(row.charged.microusd)} {row.charged.tokens:,} tokens" if row.charged.model_calls else ""
        more = ", ".join(part for part in (cost, claims) if part)
        yield f"  {seq:>5} {row.kind.value:<6} {row.name:<28} {row.state.value:<11} {more}".rstrip()


def _difference(view: TaskView, artifacts: ArtifactStore) -> str:
    ref = view.result.difference if view.result else view.row.difference if view.row else None
    if ref is None and view.state and view.state.frames.t2:
        ref = view.state.frames.t2.difference
    return "\n".join(_text(artifacts, ref, indent="", limit=None)) if ref else ""


def _text(
    artifacts: ArtifactStore, ref: TextRef, indent: str = "    ", limit: int | None = EXCERPT_LINES
) -> Iterator[str]:
    try:
        found = artifacts.get_text(ref).splitlines()
    except ArtifactMissing as error:
        found = [f"({error})"]
    shown = found if limit is None else found[:limit]
    yield from (f"{indent}{line}" for line in shown)
    if len(shown) < len(found):
        yield f"{indent}… {counted(len(found) - len(shown), 'more line')} in sha256:{ref.sha256}"
