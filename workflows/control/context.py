"""Which texts go into a prompt: pure, so that the workflow knows what it is about to send and to spend."""

from collections.abc import Callable, Iterable, Iterator

from schemas.actions import Observation, headline
from schemas.frames import Frame
from schemas.models import Node
from schemas.plan import Step, StepStatus
from schemas.state import AgentState
from schemas.task import TaskSpec
from schemas.texts import ContextText, TextRef
from workflows.control.budget import left
from workflows.control.decision import current_plan, current_step

INLINE = 1900  # characters of our own text in one place; longer lists take several
OBSERVATION_TOKENS = 4000  # newest observations first, until this is reached; the newest always goes in
MAX_OBSERVATIONS = 24  # whatever their size
SUMMARIES = 4  # summaries of the last steps
DONE_STEPS = 6  # done steps by name, for the executor; a planner sees all that the plan keeps

Fill = Callable[[TaskSpec, AgentState], Iterable[ContextText]]

PLANNING = ("goal", "instructions", "requirements", "tools", "frame", "steering", "budget", "limits")
JUDGING = ("step", "instruction", "frame_before", "frame", "difference", "observations", "checks")
SLOTS_OF_NODE: dict[Node, tuple[str, ...]] = {
    Node.PLAN: PLANNING,
    Node.REPLAN: (*PLANNING, "plan", "learned", "verdict", "observations", "action_summary"),
    Node.IS_STEP_DONE: ("step", "instruction", "frame", "observations", "checks"),
    Node.PROPOSE_ACTION: (
        *("goal", "instructions", "requirements", "tools", "plan", "step", "instruction", "frame"),
        *("observations", "verdict", "action_summary", "steering", "budget", "limits"),
    ),
    Node.SUMMARIZE_ACTIONS: ("step", "instruction", "observations", "difference"),
    Node.VALIDATE_PLAN_STEP: JUDGING,
    Node.IS_STEP_DONE_BY_VALIDATION: JUDGING,
    Node.SUMMARIZE_PLAN_STEP: ("step", "instruction", "observations", "difference"),
}


def build_context(spec: TaskSpec, state: AgentState, node: Node, learned: str = "") -> tuple[ContextText, ...]:
    """Return what fills the prompt of ``node``, slot by slot; ``learned`` is why a new plan version is due.

    Judges get frames and outputs, never the executor's own summary.
    """
    fills = FILLS | FILLS_OF_NODE.get(node, {})
    texts = [text for slot in SLOTS_OF_NODE[node] if slot != "learned" for text in fills[slot](spec, state)]
    return (*texts, *_lines("learned", [learned])) if learned else tuple(texts)


def observations_that_fit(observations: tuple[Observation, ...]) -> tuple[Observation, ...]:
    """Return the newest observations within both bounds, oldest first, and always the newest one."""
    kept: list[Observation] = []
    tokens = 0
    for observation in reversed(observations):
        tokens += observation.excerpt.tokens if observation.excerpt else 0
        if len(kept) == MAX_OBSERVATIONS or (kept and tokens > OBSERVATION_TOKENS):
            break
        kept.append(observation)
    return tuple(reversed(kept))


def _lines(slot: str, lines: Iterable[str], label: str = "") -> Iterator[ContextText]:
    """Yield lines, packed into as few places as their length allows."""
    packed = ""
    for line in lines:
        line = line[:INLINE]
        if packed and len(packed) + len(line) + 1 > INLINE:
            yield ContextText(slot=slot, label=label, inline=packed)
            packed = ""
        packed = f"{packed}\n{line}" if packed else line
    if packed:
        yield ContextText(slot=slot, label=label, inline=packed)


def _ref(slot: str, ref: TextRef | None, label: str = "") -> Iterator[ContextText]:
    if ref is not None:
        yield ContextText(slot=slot, label=label, ref=ref)


def _goal(spec: TaskSpec, state: AgentState) -> Iterable[ContextText]:
    return _ref("goal", state.goal)


def _instructions(spec: TaskSpec, state: AgentState) -> Iterable[ContextText]:
    return _ref("instructions", state.instructions if spec.instructions else None)


def _tools(spec: TaskSpec, state: AgentState) -> Iterable[ContextText]:
    return _ref("tools", state.tool_guide)


def _requirements(spec: TaskSpec, state: AgentState) -> Iterable[ContextText]:
    lines = []
    for requirement, known in zip(spec.requirements, state.requirements, strict=True):
        kind = "" if requirement.mandatory else ", optional"
        met = {True: "holds", False: "does not hold", None: "not checked yet"}[known.met]
        lines.append(f"- {requirement.id} ({met}{kind}): {requirement.text}")
    return _lines("requirements", lines)


def _checks(spec: TaskSpec, state: AgentState) -> Iterator[ContextText]:
    """Yield what the last checks found, each under its requirement's id: it can be cited."""
    for known in state.requirements:
        if known.met is not None:
            met = "holds" if known.met else "does not hold"
            yield ContextText(slot="checks", label=known.id, inline=f"{met}: {known.detail}")


def _plan(spec: TaskSpec, state: AgentState) -> Iterable[ContextText]:
    return _lines("plan", _plan_lines(state, done_steps=None))


def _plan_from_here(spec: TaskSpec, state: AgentState) -> Iterable[ContextText]:
    return _lines("plan", _plan_lines(state, DONE_STEPS))


def _plan_lines(state: AgentState, done_steps: int | None) -> Iterator[str]:
    """Yield the plan, with the newest ``done_steps`` of the steps that are done, or with all of them."""
    plan = current_plan(state)
    if plan is None:
        return
    yield f"version {plan.version}: {plan.why}"
    done = [step.id for step in plan.steps if step.status is StepStatus.DONE]
    unnamed = frozenset() if done_steps is None else frozenset(done[:-done_steps])
    if unnamed:
        yield f"- {len(unnamed)} earlier steps [done]"
    for number, step in enumerate(plan.steps):
        here = step.status is StepStatus.TODO and number == state.cursor.step
        if step.id not in unnamed:
            yield f"- {step.id} [{'now' if here else step.status.value}] {step.title}"


def _step(spec: TaskSpec, state: AgentState) -> Iterable[ContextText]:
    step = current_step(state)
    return _lines("step", [f"{step.id}: {step.title}"] if step else [])


def _instruction(spec: TaskSpec, state: AgentState) -> Iterable[ContextText]:
    step = current_step(state)
    if step is None or step.instruction is not None:
        return _ref("instruction", step.instruction if step else None)
    return _lines("instruction", _texts_of(spec, step))


def _texts_of(spec: TaskSpec, step: Step) -> list[str]:
    return [f"- {item.id}: {item.text}" for item in spec.requirements if item.id in step.requirements]


def _latest(state: AgentState) -> Frame | None:
    return state.frames.t2 or state.frames.t1


def _frame(spec: TaskSpec, state: AgentState) -> Iterable[ContextText]:
    frame = _latest(state)
    return _ref("frame", frame.text, frame.id) if frame else ()


def _frame_before(spec: TaskSpec, state: AgentState) -> Iterable[ContextText]:
    frames = state.frames
    return _ref("frame_before", frames.t1.text, frames.t1.id) if frames.t1 and frames.t2 else ()


def _difference(spec: TaskSpec, state: AgentState) -> Iterable[ContextText]:
    frame = state.frames.t2
    return _ref("difference", frame.difference, f"{frame.id}-diff") if frame else ()


def _observations(spec: TaskSpec, state: AgentState) -> Iterator[ContextText]:
    for item in observations_that_fit(state.observations):
        if item.excerpt is not None:
            yield ContextText(slot="observations", label=item.id, ref=item.excerpt)
        else:
            yield ContextText(slot="observations", label=item.id, inline=headline(item)[:INLINE])


def _verdict(spec: TaskSpec, state: AgentState) -> Iterable[ContextText]:
    verdict = state.last_verdict
    if verdict is None:
        return ()
    said = f"{'done' if verdict.result else 'not done'}: {verdict.reason}"
    return _lines("verdict", [said])  # a reason and a summary may quote the environment


def _action_summary(spec: TaskSpec, state: AgentState) -> Iterator[ContextText]:
    plan = current_plan(state)
    done = [step for step in plan.steps if step.summary is not None] if plan else []
    for step in done[-SUMMARIES:]:
        yield from _ref("action_summary", step.summary, step.id)
    yield from _ref("action_summary", state.action_summary)


def _steering(spec: TaskSpec, state: AgentState) -> Iterable[ContextText]:
    return _lines("steering", [f"- {item.by or 'operator'}: {item.text}" for item in state.steering])


def _budget(spec: TaskSpec, state: AgentState) -> Iterable[ContextText]:
    return _lines("budget", [left(state, spec.limits)])


def _limits(spec: TaskSpec, state: AgentState) -> Iterable[ContextText]:
    bounds = spec.bounds
    return _lines(
        "limits",
        [
            f"plan versions used {state.versions_used} of {bounds.max_plan_versions}; "
            f"iteration {state.cursor.iteration + 1} of {bounds.max_plan_step_iterations} of this step; "
            f"actions left in this iteration {bounds.max_plan_step_actions - state.cursor.actions}"
        ],
    )


FILLS: dict[str, Fill] = {
    "goal": _goal,
    "instructions": _instructions,
    "requirements": _requirements,
    "checks": _checks,
    "tools": _tools,
    "plan": _plan,
    "step": _step,
    "instruction": _instruction,
    "frame": _frame,
    "frame_before": _frame_before,
    "difference": _difference,
    "observations": _observations,
    "verdict": _verdict,
    "action_summary": _action_summary,
    "steering": _steering,
    "budget": _budget,
    "limits": _limits,
}
FILLS_OF_NODE: dict[Node, dict[str, Fill]] = {Node.PROPOSE_ACTION: {"plan": _plan_from_here}}
"""Where a node is told less than others, since its request would grow with what is done."""
