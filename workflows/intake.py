"""The input of a task: read strictly, and refused with a typed failure that says what to do."""

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
    if workflow.info().continued_run_id:
        raise UnknownState(f"handed over by a newer worker? {problem}")
    raise ApplicationError(
        f"not an input that this worker takes: {problem}. {ADVICE}", type=InputRefused.__name__, non_retryable=True
    )
