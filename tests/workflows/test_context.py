"""What goes into a prompt: enough to decide by, and no more the longer a run takes."""

from schemas.models import Node
from schemas.plan import Cursor, PlanVersion, Step, StepStatus
from schemas.state import AgentState
from tests.support.scripted import spec
from workflows.control.context import DONE_STEPS, build_context


def state_with(done: int) -> AgentState:
    """Return a state whose plan has so many done steps and two to do."""
    steps = tuple(
        Step(
            id=f"v1.s{number}",
            title=f"part {number}",
            instruction=None,
            status=StepStatus.DONE if number <= done else StepStatus.TODO,
        )
        for number in range(1, done + 3)
    )
    plan = PlanVersion(version=1, why="because", steps=steps)
    return AgentState(started_at="", requirements=(), plans=(plan,), cursor=Cursor(step=done))


def plan_told(node: Node, done: int) -> list[str]:
    task = spec("q").model_copy(update={"requirements": ()})
    texts = build_context(task, state_with(done), node)
    return "\n".join(text.inline for text in texts if text.slot == "plan").splitlines()


def test_the_executor_is_told_the_newest_done_steps_and_how_many_came_before() -> None:
    assert plan_told(Node.PROPOSE_ACTION, 2) == [
        "version 1: because",
        "- v1.s1 [done] part 1",
        "- v1.s2 [done] part 2",
        "- v1.s3 [now] part 3",
        "- v1.s4 [todo] part 4",
    ]
    told = plan_told(Node.PROPOSE_ACTION, 90)
    assert told[1:3] == [f"- {90 - DONE_STEPS} earlier steps [done]", f"- v1.s{91 - DONE_STEPS} [done] part 85"]
    assert len(told) == len(plan_told(Node.PROPOSE_ACTION, 30)) == DONE_STEPS + 4


def test_the_planner_is_told_every_done_step_that_the_plan_keeps() -> None:
    assert len(plan_told(Node.REPLAN, 90)) == 93
