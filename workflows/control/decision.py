"""The decision controller: transparent rules in a fixed order, each with a sentence that a person understands."""

from schemas.base import counted
from schemas.outcome import Outcome, OutcomeKind, StopReason
from schemas.plan import PlanVersion, Step
from schemas.state import AgentState, Decision, DecisionKind, EventKind
from schemas.task import TaskSpec
from workflows.control.budget import REASON_OF_LIMIT, exhausted


def decide(spec: TaskSpec, state: AgentState) -> Decision:
    """Return what happens next. Total and deterministic; the order of the rules is the order below."""
    return (
        _cancelled(state)
        or _requirements_hold(state)
        or _hard_budget(spec, state)
        or _plan_due(spec, state)
        or _go_on(state)
    )


def current_plan(state: AgentState) -> PlanVersion | None:
    """Return the plan version in use, or None before the first."""
    return state.plans[-1] if state.plans else None


def current_step(state: AgentState) -> Step | None:
    """Return the step the run is at, or None where there is no plan or no step left."""
    plan = current_plan(state)
    return plan.steps[state.cursor.step] if plan and state.cursor.step < len(plan.steps) else None


def unmet(state: AgentState) -> tuple[str, ...]:
    """Return the ids of the mandatory requirements that do not hold, or were never checked."""
    return tuple(item.id for item in state.requirements if item.mandatory and not item.met)


def stop(reason: StopReason, rule: str, sentence: str) -> Decision:
    """Return the decision to stop incomplete."""
    outcome = Outcome(kind=OutcomeKind.STOPPED_INCOMPLETE, reason=reason, detail=sentence)
    return Decision(kind=DecisionKind.STOP, rule=rule, sentence=sentence, outcome=outcome)


def _cancelled(state: AgentState) -> Decision | None:
    if state.cancel is None:
        return None
    sentence = f"Cancelled by {state.cancel.by or 'someone'}" + (f": {state.cancel.text}" if state.cancel.text else "")
    sentence = sentence[:500]
    outcome = Outcome(kind=OutcomeKind.CANCELLED, detail=sentence)
    return Decision(kind=DecisionKind.CANCEL, rule="cancelled", sentence=sentence, outcome=outcome)


def _requirements_hold(state: AgentState) -> Decision | None:
    if unmet(state):
        return None
    held = ", ".join(item.id for item in state.requirements if item.mandatory)
    sentence = f"All mandatory requirements hold by their checks: {held}"[:500]
    outcome = Outcome(kind=OutcomeKind.FINISHED, detail=sentence)
    return Decision(kind=DecisionKind.FINISH, rule="requirements_hold", sentence=sentence, outcome=outcome)


def _hard_budget(spec: TaskSpec, state: AgentState) -> Decision | None:
    name = exhausted(state, spec.limits)
    if name is None:
        return None
    limit = getattr(spec.limits, name)
    sentence = f"The limit of {limit:,} {name} is used up; {', '.join(unmet(state))} unmet"[:500]
    return stop(REASON_OF_LIMIT[name], "hard_budget", sentence)


def _plan_due(spec: TaskSpec, state: AgentState) -> Decision | None:
    due = _why_plan(spec, state)
    if due is None:
        return None
    rule, sentence = due
    if state.versions_used >= spec.bounds.max_plan_versions:
        return stop(
            StopReason.MAX_PLAN_VERSIONS,
            "max_plan_versions",
            f"{sentence.rstrip('. ')}. {_all_used(spec.bounds.max_plan_versions)}"[:500],
        )
    kind = DecisionKind.REPLAN if state.plans else DecisionKind.PLAN
    return Decision(kind=kind, rule=rule, sentence=sentence[:500])


def _why_plan(spec: TaskSpec, state: AgentState) -> tuple[str, str] | None:
    if current_plan(state) is None:
        drafts = [event.text for event in state.events if event.kind is EventKind.PLAN_VERSION]
        return "no_plan", f"There is no plan yet; {drafts[-1]}" if drafts else "There is no plan yet."
    step = current_step(state)
    if step is None:
        return "requirement_unmet", f"All steps are done, yet {', '.join(unmet(state))} does not hold."
    if state.cursor.iteration >= spec.bounds.max_plan_step_iterations:
        why = state.last_verdict.reason if state.last_verdict else "no verdict"
        tries = spec.bounds.max_plan_step_iterations
        return "max_plan_step_iterations", f"{step.id} is not done after {counted(tries, 'iteration')}: {why}"
    return None


def _go_on(state: AgentState) -> Decision:
    step = current_step(state)
    where = step.id if step else "the plan"
    return Decision(
        kind=DecisionKind.CONTINUE,
        rule="continue",
        sentence=f"{where}, iteration {state.cursor.iteration + 1}",
    )


def _all_used(versions: int) -> str:
    return "The only plan version is used." if versions == 1 else f"All {versions} plan versions are used."
