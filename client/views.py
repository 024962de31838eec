"""What is known of a task, and how it is worded where little is."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from schemas.base import clip
from schemas.lenient import Read, read_reply
from schemas.outcome import Outcome, OutcomeKind
from schemas.state import AgentState, Summary, TaskResult
from stores.records import RunRow
from stores.unrecorded import TERMINATED, TIMED_OUT

FAILING_ATTEMPTS = 4  # a worker that dies and comes back costs one or two
NOT_RUNNING = "the embedded server is not running; `surefoot up` starts it, with a worker"


@dataclass(frozen=True)
class TaskView:
    """Everything that is known of a task now."""

    id: str
    """Its id."""
    ended: bool
    """Whether it has ended."""
    run_id: str = ""
    """Last run of its chain, as far as known."""
    first_run_id: str = ""
    """First run of its chain."""
    summary: Summary | None = None
    """Its own summary; None where it was not to be had."""
    state: AgentState | None = None
    """Its state; None likewise."""
    result: TaskResult | None = None
    """Its result, where it completed and Temporal still knows it."""
    outcome: Outcome | None = None
    """How it ended."""
    row: RunRow | None = None
    """Its row in the ledger, once it has ended."""
    ended_at: str = ""
    """When it ended (ISO 8601, UTC), as far as known."""
    why_not: str = ""
    """Why summary and state are missing."""
    note: str = ""
    """What of it this client does not understand, where the worker is of another version, or could not read."""
    retrying: tuple[str, ...] = ()
    """Calls that have failed and are tried again, as ``retrying 3 of 6: plan: no connection to …``."""


def unended(task_id: str, first_run_id: str) -> TaskView:
    """Return what is known of a task that had not ended when the embedded server was stopped."""
    why_not = f"it had not ended: {NOT_RUNNING}"
    return TaskView(task_id, ended=False, run_id=first_run_id, first_run_id=first_run_id, why_not=why_not)


def unrecorded(task_id: str, first_run_id: str, histories: Iterable[Path] = ()) -> TaskView:
    """Return what is known of a task that Temporal has forgotten, and whose end nobody has recorded.

    ``histories`` are the files in which Temporal's history of it was kept.
    """
    detail = "Temporal does not know it any more and its end was not recorded: it was terminated, most likely"
    return TaskView(
        task_id,
        ended=True,
        run_id=first_run_id,
        first_run_id=first_run_id,
        outcome=Outcome(kind=OutcomeKind.FAILED, error_type="Unrecorded", detail=detail),
        why_not="nothing is left of it but its effects in the ledger and what it had archived"
        + "".join(f"; Temporal's history of it is kept in {path}" for path in histories),
    )


def without_ledger(what: str, error: Exception) -> str:
    """Say that ``what`` is missing because the ledger cannot be read."""
    return f"{what} is missing: {error}"


def silence(attempt: int) -> str:
    """Say why nobody answers for a task: its workflow task is at this attempt."""
    if attempt >= FAILING_ATTEMPTS:
        return f"its worker fails on it (attempt {attempt}); logs/worker.log in the data folder says why"
    return "no worker answers for it; start one with `surefoot up` or `surefoot worker`"


def result_of(error: WorkflowFailureError) -> Read[TaskResult]:
    """Return the result that a FAILED run gives along with its failure; nothing where there is none."""
    details = error.cause.details if isinstance(error.cause, ApplicationError) else ()
    return read_reply(TaskResult, json.dumps(details[0])) if details else Read(None)


def of_failure(status: WorkflowExecutionStatus | None, error: WorkflowFailureError) -> Outcome:
    """Return the outcome of a run that ended without recording one."""
    cause = error.cause
    if status is WorkflowExecutionStatus.CANCELED:
        return Outcome(kind=OutcomeKind.CANCELLED, detail="Cancelled through Temporal")
    if status is WorkflowExecutionStatus.TERMINATED:
        return Outcome(kind=OutcomeKind.FAILED, error_type=TERMINATED, detail=clip(str(cause) or "without a reason"))
    if status is WorkflowExecutionStatus.TIMED_OUT:
        return Outcome(kind=OutcomeKind.FAILED, error_type=TIMED_OUT, detail="the run's own time-out was over")
    if isinstance(cause, ApplicationError):
        kind, detail = cause.type or "ApplicationError", cause.message
    else:
        kind, detail = type(cause).__name__, str(cause)
    return Outcome(kind=OutcomeKind.FAILED, error_type=kind, detail=clip(detail))
