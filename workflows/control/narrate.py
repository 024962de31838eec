"""The state in words, for queries, for Temporal's own page and for the command line."""

from schemas.base import clip
from schemas.outcome import Status
from schemas.plan import StepStatus
from schemas.state import AgentState, EventKind, Summary
from schemas.task import TaskSpec
from workflows.control.budget import exact_dollars, left
from workflows.control.decision import current_plan, current_step

MARK = {StepStatus.TODO: "○", StepStatus.DONE: "●", StepStatus.FAILED: "✗"}


def summarize(spec: TaskSpec, state: AgentState, now: str) -> Summary:
    """Return the state in a few lines; ``now`` says what happens at the moment."""
    plan, step = current_plan(state), current_step(state)
    return Summary(
        name=spec.name,
        status=state.status.value,
        goal=clip(spec.goal, 300),
        place=place_of(state),
        step_title=step.title if step else "",
        plan_version=plan.version if plan else 0,
        steps_done=sum(item.status is StepStatus.DONE for item in plan.steps) if plan else 0,
        steps_total=len(plan.steps) if plan else 0,
        requirements_met=sum(item.met is True for item in state.requirements),
        requirements_total=len(state.requirements),
        spend=state.spend,
        messages=state.messages,
        rehearsed=any(choice.rehearsed for choice in spec.models.values()),
        now=_now(state, now),
    )


def _now(state: AgentState, doing: str) -> str:
    """Say of a pause that is accepted, while the call under way has not ended: it must not look ignored."""
    if state.paused_by is None or state.status is Status.PAUSED or state.outcome is not None:
        return doing
    return clip(f"pausing for {state.paused_by}, as soon as the call under way has ended: {doing}")


def place_of(state: AgentState) -> str:
    """Return where the run is, as ``v2.s3.i1``, ``v2`` or ``start``."""
    plan, step = current_plan(state), current_step(state)
    if plan is None:
        return "start"
    return f"{step.id}.i{state.cursor.iteration + 1}" if step else f"v{plan.version}"


def status_change(state: AgentState, status: Status) -> tuple[EventKind, str]:
    """Return the record of a run's move from its status to another one."""
    if status is Status.PAUSED:
        return EventKind.PAUSE, f"stands still, paused by {state.paused_by}"
    if state.status is Status.PAUSED:
        return EventKind.PAUSE, "goes on" if status is Status.RUNNING else f"no longer paused: {status.value}"
    return EventKind.STATE_CHANGE, f"{state.status.value} → {status.value}"


def details(spec: TaskSpec, state: AgentState, now: str) -> str:
    """Return markdown for Temporal's own page."""
    lines = [f"**{spec.name}**: {now}", "", clip(spec.goal, 300), ""]
    plan = current_plan(state)
    if plan:
        lines.append(f"Plan v{plan.version}: {plan.why}")
        lines += [f"- {MARK[step.status]} {step.id} {step.title}" for step in plan.steps]
        lines.append("")
    for item in state.requirements:
        met = {True: "holds", False: "does not hold", None: "not checked yet"}[item.met]
        lines.append(f"- {item.id}: {met}. {item.detail}".rstrip(". "))
    lines += ["", f"Spent {exact_dollars(state.spend.microusd)}; left: {left(state, spec.limits)}"]
    if any(choice.rehearsed for choice in spec.models.values()):
        lines.append("Answers come from a rehearsed script, not from a model.")
    return "\n".join(lines)
