"""The commands that only look: ps and show."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

from temporalio.client import WorkflowExecution, WorkflowExecutionStatus

from client import lines, live
from client.events import events_of
from client.session import Session, say, wake_embedded, with_session
from client.tasks import LEDGER_AWAY, TERMINATED, TaskView, without_ledger
from schemas.contract import TASK_WORKFLOW, SearchAttribute
from schemas.errors import ArtifactMissing
from schemas.outcome import EXIT_VERIFIED, OutcomeKind, exit_code
from schemas.scenario import MICROUSD_PER_USD
from schemas.state import AgentState, Event
from schemas.texts import TextRef
from stores.artifacts import ArtifactStore
from stores.records import EffectRow, RunRow
from stores.settings import Settings
from stores.temporal import SEARCH_ATTRIBUTES

SHOWN_EFFECTS = 30
EXCERPT_LINES = 12


def ps(settings: Settings, limit: int, running_only: bool, as_json: bool) -> int:
    """List tasks, newest first: those that Temporal knows, then those that only the ledger remembers."""
    wake_embedded(settings)

    async def work(session: Session) -> int:
        listed = await _listed(session, limit, running_only)
        if as_json:
            print("\n".join(json.dumps(item, ensure_ascii=False) for item in listed), end="\n" if listed else "")
        elif not listed:
            print("no tasks")
        else:
            print("\n".join(_table(listed)))
        return EXIT_VERIFIED

    return with_session(settings, work)


def _table(listed: list[dict[str, Any]]) -> Iterator[str]:
    width, label = (max(len(str(item[name])) for item in listed) for name in ("id", "status"))
    yield f"{'TASK':<{width}}  {'STATUS':<{label}}  {'VERIFIED':<8}  {'STARTED (UTC)':<20}  SPENT"
    for item in listed:
        verified = {True: "yes", False: "no", None: "-"}[item["verified"]]
        started = item["started"][:19].replace("T", " ")
        spent = "" if item["spend_usd"] is None else f"${item['spend_usd']:.4f}"
        yield f"{item['id']:<{width}}  {item['status']:<{label}}  {verified:<8}  {started:<20}  {spent}"


async def _listed(session: Session, limit: int, running_only: bool) -> list[dict[str, Any]]:
    rows = await _rows(session, limit)
    of_run = {row.run_id: row for row in rows}
    found = {
        item.id: _of_row(of_run[item.run_id]) if item.run_id in of_run else _of_workflow(item)
        for item in await _newest_runs(session, limit, running_only)
    }
    if not running_only:
        found = {**{row.workflow_id: _of_row(row) for row in reversed(rows)}, **found}
    return sorted(found.values(), key=lambda item: str(item["started"]), reverse=True)[:limit]


async def _rows(session: Session, limit: int) -> Sequence[RunRow]:
    """Return the runs that ended last, newest first; none, which is said, where the ledger cannot be read."""
    try:
        return await asyncio.to_thread(session.tasks.rows, limit)
    except LEDGER_AWAY as error:
        say(without_ledger("what only the ledger knows (names, exit codes, tasks that Temporal has forgotten)", error))
        return ()


async def _newest_runs(session: Session, limit: int, running_only: bool) -> list[WorkflowExecution]:
    """Return the newest run of each of ``limit`` workflow ids: an id may be used again after its run has ended."""
    query = f"WorkflowType = '{TASK_WORKFLOW}' AND ExecutionStatus "
    query += "= 'Running'" if running_only else "!= 'ContinuedAsNew'"
    newest: dict[str, WorkflowExecution] = {}
    async for item in session.client.list_workflows(query):
        if item.id not in newest and len(newest) == limit:
            break
        known = newest.setdefault(item.id, item)
        if item.start_time > known.start_time:
            newest[item.id] = item
    return list(newest.values())


def _of_workflow(item: WorkflowExecution) -> dict[str, Any]:
    """Return a task that has no row: it runs, or it ended without writing one."""
    keys = {key.name: key for key in SEARCH_ATTRIBUTES}
    said = item.typed_search_attributes
    status, reason = said.get(keys[SearchAttribute.STATUS]), said.get(keys[SearchAttribute.REASON])
    ended = item.status.name if item.status and item.status.name not in ("RUNNING", "COMPLETED") else ""
    if item.status is WorkflowExecutionStatus.TERMINATED:  # what it published last is not how it ended
        status, reason = OutcomeKind.FAILED.value, TERMINATED
    label = f"{status or ended or 'starting'}" + (f"({reason})" if reason else "")
    usd = said.get(keys[SearchAttribute.SPEND_USD])
    return _listing(item.id, label, item.start_time.isoformat(timespec="seconds")[:19], usd)


def _of_row(row: RunRow) -> dict[str, Any]:
    usd = row.spend.microusd / MICROUSD_PER_USD
    known = {"name": row.name, "ended": f"{row.ended_at[:19]}Z", "exit_code": exit_code(row.outcome)}
    verified = row.outcome.verified if row.outcome.kind is OutcomeKind.FINISHED else None
    return {**_listing(row.workflow_id, row.outcome.label, row.started_at[:19], usd), **known, "verified": verified}


def _listing(task_id: str, status: str, started: str, usd: float | None) -> dict[str, Any]:
    unknown = {"name": None, "ended": None, "exit_code": None, "verified": None}
    return {"id": task_id, "status": status, "started": f"{started}Z", "spend_usd": usd, **unknown}


def show(settings: Settings, task_id: str, events: int, diff: bool, as_json: bool) -> int:
    """Print everything about one task."""
    wake_embedded(settings)

    async def work(session: Session) -> int:
        view = await session.tasks.look(task_id)
        effects = await _effects(session, view)
        kept = await asyncio.to_thread(events_of, view, session.archive)
        newest = kept.events[-events:] if events else ()
        for problem in kept.missing:
            say(problem)
        if as_json:
            difference = _difference(view, session.artifacts) if diff else None
            print(json.dumps(_as_json(view, effects, newest, difference)))
        else:
            print("\n".join(_show_lines(view, effects, newest, session.artifacts)))
            if diff:
                print("\ndifference of the workspace")
                print(_difference(view, session.artifacts) or "  none recorded")
        return EXIT_VERIFIED

    return with_session(settings, work)


async def _effects(session: Session, view: TaskView) -> Sequence[EffectRow] | None:
    """Return the chain's effects; None, which is said, where the ledger cannot be read."""
    try:
        return await asyncio.to_thread(session.tasks.effects, view.first_run_id)
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
    view: TaskView, effects: Sequence[EffectRow] | None, events: Sequence[Event], artifacts: ArtifactStore
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
        yield from _state_lines(view.state, artifacts, view.ended)
    yield from _effect_lines(effects or ())
    if events:
        yield f"last {len(events)} events; `surefoot events {view.id}` has all"
        yield from (f"  {lines.event_line(event)}" for event in events)
    if view.ended:
        yield from lines.ending_lines(view)


def _state_lines(state: AgentState, artifacts: ArtifactStore, ended: bool) -> Iterator[str]:
    yield f"started      {state.started_at}"
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
        yield f"{indent}… {len(found) - len(shown)} more lines in sha256:{ref.sha256}"
