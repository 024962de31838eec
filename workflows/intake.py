"""The input of a task: read strictly, and refused with a typed failure that says what to do."""

import json

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from schemas.base import clip
from schemas.contract import CONTRACT_VERSION
from schemas.errors import InputRefused
from schemas.state import TaskInput
from workflows.control.receive import explain

ADVICE = (
    f"Fields that a worker does not know are refused, not ignored: leave them out, or update the workers "
    f"(this one knows contract {CONTRACT_VERSION}; `surefoot contract` prints it)"
)


class UnknownState(Exception):
    """The run before handed over what this worker cannot read: the run waits for a worker that can."""


def read_input(raw: RawValue) -> TaskInput:
    """Return the input of this run.

    Raises: ApplicationError of type InputRefused, which fails the run, where a client's input is none that this worker
    takes; UnknownState, which lets it wait, where it comes from another worker.
    """
    try:
        task = workflow.payload_converter().from_payload(raw.payload, TaskInput)
        problem = "" if isinstance(task, TaskInput) else "one JSON object expected, with spec"
    except ValidationError as error:
        task, problem = None, explain(error)
    except Exception as error:  # whatever a converter raises on foreign bytes: the input is refused with what it says
        task, problem = None, clip(f"it cannot be decoded: {error}", 300)
    if isinstance(task, TaskInput):
        return task
    if _names_the_run_before(_said(raw)):
        raise UnknownState(f"handed over by a newer worker? {problem}")
    raise ApplicationError(
        f"not an input that this worker takes: {problem}. {ADVICE}", type=InputRefused.__name__, non_retryable=True
    )


def handed_over(task: TaskInput) -> bool:
    """Whether the run before has handed over this input. A schedule or a retry begins anew, with a client's input."""
    return _names_the_run_before(task.handed_over_by)


def _names_the_run_before(run_id: object) -> bool:
    """Whether ``run_id`` is that of the run before, which no client can know when it writes an input.

    A run that Temporal starts anew, by a cron or retry policy, follows a run too, but gets the input of a run's start,
    which was written before that run had its id.
    """
    return run_id is not None and run_id == workflow.info().continued_run_id


def _said(raw: RawValue) -> object:
    """Return who the input says has handed it over, whatever else stands in it."""
    try:
        found = json.loads(raw.payload.data)
    except ValueError:
        return None
    return found.get("handed_over_by") if isinstance(found, dict) else None
