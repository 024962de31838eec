"""The command that lists tasks."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus

from client.session import Records, with_records
from client.streams import say
from client.tasks import LEDGER_AWAY
from client.views import without_ledger
from schemas.contract import TASK_WORKFLOW, SearchAttribute
from schemas.outcome import EXIT_VERIFIED, OutcomeKind, exit_code
from schemas.scenario import MICROUSD_PER_USD
from stores.records import RunRow
from stores.search_attributes import SEARCH_ATTRIBUTES
from stores.settings import Settings

UNENDED = "not ended"
"""Of a task whose embedded server does not run: what it did last is not known."""


def ps(settings: Settings, limit: int, running_only: bool, as_json: bool) -> int:
    """List tasks, newest first: those that Temporal knows, then those that only the ledger remembers."""

    async def work(records: Records) -> int:
        listed = await _listed(records, limit, running_only)
        if as_json:
            print("\n".join(json.dumps(item, ensure_ascii=False) for item in listed), end="\n" if listed else "")
        elif not listed:
            print("no tasks")
        else:
            print("\n".join(_table(listed)))
        return EXIT_VERIFIED

    return with_records(settings, work)


def _table(listed: list[dict[str, Any]]) -> Iterator[str]:
    width, label = (max(len(str(item[name])) for item in listed) for name in ("id", "status"))
    yield f"{'TASK':<{width}}  {'STATUS':<{label}}  {'VERIFIED':<8}  {'STARTED (UTC)':<20}  SPENT"
    for item in listed:
        verified = {True: "yes", False: "no", None: "-"}[item["verified"]]
        started = (item["started"] or "-")[:19].replace("T", " ")
        spent = "" if item["spend_usd"] is None else f"${item['spend_usd']:.4f}"
        yield f"{item['id']:<{width}}  {item['status']:<{label}}  {verified:<8}  {started:<20}  {spent}"


async def _listed(records: Records, limit: int, running_only: bool) -> list[dict[str, Any]]:
    rows = await _rows(records, limit)
    of_run = {row.run_id: row for row in rows}
    if records.client is None:
        found = {item["id"]: item for item in await _unended(records, rows)}
    else:
        found = {
            item.id: _of_row(of_run[item.run_id]) if item.run_id in of_run else await _of_workflow(records, item)
            for item in await _newest_runs(records.client, limit, running_only)
        }
    if not running_only:
        found = {**{row.workflow_id: _of_row(row) for row in reversed(rows)}, **found}
    newest_first = sorted(found.values(), key=lambda item: str(item["started"] or ""), reverse=True)
    return sorted(newest_first, key=lambda item: item["started"] is not None)[:limit]  # what may still go on first


async def _unended(records: Records, rows: Sequence[RunRow]) -> list[dict[str, Any]]:
    """Return what had not ended, by the ledger, when the embedded server was stopped."""
    try:
        chains = await asyncio.to_thread(records.tasks.without_end)
    except LEDGER_AWAY:  # said already
        return []
    ended = {row.workflow_id: row.ended_at for row in reversed(rows)}
    newer = [chain.workflow_id for chain in chains if chain.last_effect_at > ended.get(chain.workflow_id, "")]
    return [_listing(task_id, UNENDED, None, None) for task_id in newer]


async def _rows(records: Records, limit: int) -> Sequence[RunRow]:
    """Return the runs that ended last, newest first; none, which is said, where the ledger cannot be read."""
    try:
        return await asyncio.to_thread(records.tasks.rows, limit)
    except LEDGER_AWAY as error:
        say(without_ledger("what only the ledger knows (names, exit codes, tasks that Temporal has forgotten)", error))
        return ()


async def _newest_runs(client: Client, limit: int, running_only: bool) -> list[WorkflowExecution]:
    """Return the newest run of each of ``limit`` workflow ids: an id may be used again after its run has ended."""
    query = f"WorkflowType = '{TASK_WORKFLOW}' AND ExecutionStatus "
    query += "= 'Running'" if running_only else "!= 'ContinuedAsNew'"
    newest: dict[str, WorkflowExecution] = {}
    async for item in client.list_workflows(query):
        if item.id not in newest and len(newest) == limit:
            break
        known = newest.setdefault(item.id, item)
        if item.start_time > known.start_time:
            newest[item.id] = item
    return list(newest.values())


async def _of_workflow(records: Records, item: WorkflowExecution) -> dict[str, Any]:
    """Return a task that has no row: it runs, or it ended without writing one."""
    keys = {key.name: key for key in SEARCH_ATTRIBUTES}
    said = item.typed_search_attributes
    started, usd = item.start_time.isoformat()[:19], said.get(keys[SearchAttribute.SPEND_USD])
    published = said.get(keys[SearchAttribute.OUTCOME])
    if item.status is WorkflowExecutionStatus.RUNNING or published:
        reason = said.get(keys[SearchAttribute.REASON])
        label = f"{said.get(keys[SearchAttribute.STATUS]) or 'starting'}" + (f"({reason})" if reason else "")
        return _listing(item.id, label, started, usd)
    # refused before it began, terminated, timed out: what it published last is not how it ended
    outcome = (await records.tasks.look(item.id)).outcome
    listed = _listing(item.id, outcome.label if outcome else "unknown", started, usd)
    ended = f"{item.close_time.isoformat()[:19]}Z" if item.close_time else None
    return {**listed, "ended": ended, "exit_code": exit_code(outcome) if outcome else None}


def _of_row(row: RunRow) -> dict[str, Any]:
    usd = row.spend.microusd / MICROUSD_PER_USD
    known = {"name": row.name, "ended": f"{row.ended_at[:19]}Z", "exit_code": exit_code(row.outcome)}
    verified = row.outcome.verified if row.outcome.kind is OutcomeKind.FINISHED else None
    return {**_listing(row.workflow_id, row.outcome.label, row.started_at[:19], usd), **known, "verified": verified}


def _listing(task_id: str, status: str, started: str | None, usd: float | None) -> dict[str, Any]:
    unknown = {"name": None, "ended": None, "exit_code": None, "verified": None}
    return {"id": task_id, "status": status, "started": started and f"{started}Z", "spend_usd": usd, **unknown}
