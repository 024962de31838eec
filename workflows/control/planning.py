"""Plan versions: done steps stay done, and no unmet requirement is dropped silently."""

from schemas.base import clip, rebuild
from schemas.ids import step_id
from schemas.plan import Cursor, PlanDraft, PlanVersion, Step, StepStatus
from schemas.state import AgentState
from schemas.task import TaskSpec
from schemas.texts import TextRef
from workflows.control.decision import current_plan, current_step, unmet

KEPT_VERSIONS = 10  # of the plan, in the state; the run's events tell of all
KEPT_DONE_STEPS = 100  # carried from version to version, the newest


def new_version(spec: TaskSpec, state: AgentState, draft: PlanDraft, learned: str) -> AgentState:
    """Return the state with the drafted steps as the next plan version, after the steps that are done."""
    before = current_plan(state)
    failed = current_step(state)
    version = before.version + 1 if before else 1
    steps = _carried(before, version)
    for item in draft.steps:
        steps.append(
            Step(
                id=step_id(version, len(steps) + 1),
                title=item.title,
                instruction=item.instruction,
                requirements=tuple(name for name in item.requirements if name in _ids(spec)),
            )
        )
    steps += _for_dropped(state, steps, version)
    plan = PlanVersion(
        version=version,
        why=draft.why,
        after_step=failed.id if failed else None,
        learned=clip(learned),
        steps=tuple(steps),
    )
    plans = (*_superseded(state.plans, failed), plan)[-KEPT_VERSIONS:]
    done = sum(step.status is StepStatus.DONE for step in steps)
    return rebuild(
        state,
        plans=plans,
        cursor=Cursor(step=done),
        last_verdict=None,
        observations=(),
        frames=rebuild(state.frames, judged_not_done=None),
    )


def as_written(plan: PlanVersion) -> PlanVersion:
    """Return the version without the done steps that it carried from earlier ones: those are recorded there."""
    return rebuild(plan, steps=tuple(step for step in plan.steps if step.done_as in (None, step.id)))


def step_done(state: AgentState, summary: TextRef | None) -> AgentState:
    """Return the state with the current step done and the cursor at the next one."""
    plan, step = state.plans[-1], state.plans[-1].steps[state.cursor.step]
    # what a state holds of done steps is carried along for as long as the task lasts; the version's event has the rest
    done = rebuild(step, status=StepStatus.DONE, done_as=step.id, summary=summary, instruction=None)
    steps = (*plan.steps[: state.cursor.step], done, *plan.steps[state.cursor.step + 1 :])
    return rebuild(
        state,
        plans=(*state.plans[:-1], rebuild(plan, steps=steps)),
        cursor=Cursor(step=state.cursor.step + 1),
        observations=(),
        last_verdict=None,
        frames=rebuild(state.frames, judged_not_done=None),
    )


def iteration_ended(state: AgentState) -> AgentState:
    """Return the state with the current iteration counted and t2 as the next one's t1."""
    frames = state.frames
    cursor = rebuild(state.cursor, iteration=state.cursor.iteration + 1, actions=0)
    return rebuild(state, cursor=cursor, frames=rebuild(frames, t1=frames.t2 or frames.t1, t2=None))


def _ids(spec: TaskSpec) -> frozenset[str]:
    return frozenset(requirement.id for requirement in spec.requirements)


def _carried(before: PlanVersion | None, version: int) -> list[Step]:
    done = [step for step in before.steps if step.status is StepStatus.DONE] if before else []
    return [rebuild(step, id=step_id(version, number)) for number, step in enumerate(done[-KEPT_DONE_STEPS:], start=1)]


def _for_dropped(state: AgentState, steps: list[Step], version: int) -> list[Step]:
    """Return one more step for the unmet requirements that no step of the draft works towards."""
    covered = {name for step in steps if step.status is not StepStatus.DONE for name in step.requirements}
    dropped = tuple(name for name in unmet(state) if name not in covered)
    if not dropped or not covered:  # a draft that names no requirement at all has dropped none in particular
        return []
    title = clip(f"Make these hold: {', '.join(dropped)}", 160)
    return [Step(id=step_id(version, len(steps) + 1), title=title, instruction=None, requirements=dropped)]


def _superseded(plans: tuple[PlanVersion, ...], failed: Step | None) -> tuple[PlanVersion, ...]:
    """Return the versions so far, the last one with its failed step marked and without the steps that it carried."""
    if not plans:
        return plans
    plan = as_written(plans[-1])
    steps = tuple(rebuild(step, status=StepStatus.FAILED) if step == failed else step for step in plan.steps)
    return (*plans[:-1], rebuild(plan, steps=steps))
