"""The gate before every action: pure, with its reason."""

from schemas.actions import ObservationStatus, ProposedAction
from schemas.base import Frozen, Line
from schemas.task import TaskSpec


class Refusal(Frozen):
    """Why an action is not performed; it becomes the action's observation."""

    status: ObservationStatus
    """INVALID or REFUSED."""
    reason: Line
    """What the executor is told."""


def gate(spec: TaskSpec, action: ProposedAction) -> Refusal | None:
    """Return why ``action`` may not be performed, or None."""
    if action.tool not in spec.tools:
        return Refusal(
            status=ObservationStatus.REFUSED,
            reason=f"the tool {action.tool} is not among this task's tools: {', '.join(spec.tools)}",
        )
    if action.invalid is not None:
        return Refusal(status=ObservationStatus.INVALID, reason=action.invalid)
    if action.irreversible:
        return Refusal(
            status=ObservationStatus.REFUSED,
            reason=f"{action.tool} cannot be undone, and nobody can be asked to approve it; choose another way",
        )
    return None
