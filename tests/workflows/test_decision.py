"""The controller and the plan, as pure functions: any sequence of verdicts ends within the bounds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.base import rebuild
from schemas.budget import Limits, Spend
from schemas.calls import Verdict
from schemas.checks import RequirementState
from schemas.messages import Received
from schemas.outcome import OutcomeKind, StopReason
from schemas.plan import PlanDraft, StepDraft, StepStatus
from schemas.state import AgentState, DecisionKind, EventKind
from schemas.task import Bounds, TaskSpec
from tests.support.scripted import requirement, spec, text_ref
from workflows.control import planning, records
from workflows.control.decision import current_step, decide

START = "2026-01-01T00:00:00.000+00:00"


def state_of(task: TaskSpec) -> AgentState:
    """Return the state before any work, with every requirement unmet."""
    known = tuple(RequirementState(id=item.id, mandatory=item.mandatory, met=False) for item in task.requirements)
    return AgentState(started_at=START, requirements=known)


def draft(*requirements: str, steps: int = 1) -> PlanDraft:
    """Return a plan whose first step works towards ``requirements``."""
    first = StepDraft(title="s1", instruction=text_ref("s1"), requirements=requirements)
    rest = (StepDraft(title=f"s{n}", instruction=text_ref("x")) for n in range(2, steps + 1))
    return PlanDraft(why="because", steps=(first, *rest))


def planned(task: TaskSpec, *requirements: str, steps: int = 1) -> AgentState:
    """Return the state with a first plan."""
    state = planning.new_version(task, state_of(task), draft(*requirements, steps=steps), "")
    return rebuild(state, versions_used=1)


verdicts = st.lists(st.sampled_from(["done", "not done", "no plan"]), min_size=1, max_size=400)


@settings(max_examples=150, deadline=None)
@given(
    verdicts=verdicts,
    versions=st.integers(1, 6),
    iterations=st.integers(1, 4),
    steps=st.integers(1, 5),
    done_after=st.integers(0, 60),
)
def test_any_verdict_sequence_ends_within_the_bounds_with_a_typed_outcome(
    verdicts: list[str], versions: int, iterations: int, steps: int, done_after: int
) -> None:
    task = spec("q", bounds=Bounds(max_plan_versions=versions, max_plan_step_iterations=iterations))
    state = state_of(task)
    attempts = 0
    script = iter(verdicts * 50)
    most_steps = versions * (steps + 1)  # of any version; done ones are carried, never attempted again
    for _ in range(versions * (2 + most_steps * iterations) + 2):
        decision = decide(task, state)
        if decision.outcome is not None:
            break
        if decision.kind in (DecisionKind.PLAN, DecisionKind.REPLAN):
            state = rebuild(state, versions_used=state.versions_used + 1)
            if next(script) != "no plan":
                state = planning.new_version(task, state, draft(steps=steps), decision.sentence)
        else:
            attempts += 1
            met = attempts > done_after
            state = rebuild(state, requirements=tuple(rebuild(item, met=met) for item in state.requirements))
            yes = next(script) == "done"
            state = planning.step_done(state, None) if yes else planning.iteration_ended(state)
    assert decision.outcome is not None
    assert decision.outcome.kind in (OutcomeKind.FINISHED, OutcomeKind.STOPPED_INCOMPLETE)
    assert state.versions_used <= versions
    assert len(state.plans) <= versions
    if decision.outcome.kind is OutcomeKind.STOPPED_INCOMPLETE:
        assert decision.outcome.reason is StopReason.MAX_PLAN_VERSIONS
        assert state.versions_used == versions


def test_the_rules_apply_in_their_order() -> None:
    task = spec("q", limits=Limits(model_calls=3), bounds=Bounds(max_plan_versions=1))
    state = planned(task)
    assert decide(task, state).kind is DecisionKind.CONTINUE
    exhausted = rebuild(state, spend=Spend(model_calls=3))
    decision = decide(task, exhausted)
    assert decision.outcome is not None
    assert decision.outcome.reason is StopReason.BUDGET_MODEL_CALLS
    met = rebuild(exhausted, requirements=(RequirementState(id="done", mandatory=True, met=True),))
    assert decide(task, met).kind is DecisionKind.FINISH
    message = Received(id="m1", name="cancel", by="ann", at=START, accepted=True, answer="cancelling")
    assert decide(task, rebuild(met, cancel=message)).kind is DecisionKind.CANCEL


def test_a_task_that_never_got_a_plan_says_what_was_wrong_with_the_last_draft() -> None:
    task = spec("q", bounds=Bounds(max_plan_versions=1))
    assert decide(task, state_of(task)).sentence == "There is no plan yet."
    kind, text = EventKind.PLAN_VERSION, "no usable plan: the reply was empty"
    state = records.note_event(state_of(task), kind, "v1", text, START, ok=False)
    decision = decide(task, rebuild(state, versions_used=1))
    assert decision.outcome is not None
    assert decision.outcome.detail == f"There is no plan yet; {text}. The only plan version is used."


def test_all_steps_done_with_a_requirement_unmet_is_a_replan() -> None:
    task = spec("q")
    state = planning.step_done(planned(task), None)
    decision = decide(task, state)
    assert decision.kind is DecisionKind.REPLAN
    assert decision.rule == "requirement_unmet"


def test_a_replan_keeps_done_steps_done_and_marks_what_failed() -> None:
    task = spec("q")
    state = planning.step_done(planned(task, steps=3), text_ref("found it"))
    again = planning.new_version(task, state, draft(steps=2), "s2 is not done")
    first, second = again.plans
    assert [step.status for step in first.steps] == [StepStatus.DONE, StepStatus.FAILED, StepStatus.TODO]
    assert [step.instruction is None for step in second.steps] == [True, False, False]
    assert [(step.id, step.status, step.done_as) for step in second.steps] == [
        ("v2.s1", StepStatus.DONE, "v1.s1"),
        ("v2.s2", StepStatus.TODO, None),
        ("v2.s3", StepStatus.TODO, None),
    ]
    assert second.after_step == "v1.s2"
    assert second.learned == "s2 is not done"
    step = current_step(again)
    assert step is not None
    assert step.id == "v2.s2"


def test_a_plan_may_not_silently_drop_an_unmet_requirement() -> None:
    task = spec("q", requirements=(requirement("tests"), requirement("docs"), requirement("nice", mandatory=False)))
    state = planned(task, "tests", steps=2)
    last = state.plans[-1].steps[-1]
    assert last.title == "Make these hold: docs"
    assert last.requirements == ("docs",)
    assert last.instruction is None
    unnamed = planned(task, steps=2)
    assert len(unnamed.plans[-1].steps) == 2


def test_a_verdict_of_another_step_is_forgotten_when_the_step_changes() -> None:
    task = spec("q")
    no = Verdict(result=False, claimed=False, reason="no")
    state = rebuild(planned(task, steps=2), last_verdict=no)
    assert planning.step_done(state, None).last_verdict is None
    assert planning.new_version(task, state, draft(), "").last_verdict is None
