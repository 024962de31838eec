"""The state of a task: everything that is remembered, in one model."""

from enum import StrEnum
from functools import cached_property
from typing import Annotated

from pydantic import Field

from schemas.actions import Observation
from schemas.base import Count, Frozen, Line, json_bytes
from schemas.budget import Spend
from schemas.calls import PromptRef, Verdict
from schemas.checks import CheckResult, RequirementState
from schemas.contract import CONTRACT_VERSION
from schemas.frames import Frame
from schemas.messages import MessageCounts, Received
from schemas.outcome import Outcome, Status
from schemas.plan import Cursor, PlanVersion
from schemas.task import TaskSpec
from schemas.texts import BlobRef, TextRef
from schemas.workspace import Workspace


class DecisionKind(StrEnum):
    """What the controller can decide."""

    FINISH = "FINISH"
    CONTINUE = "CONTINUE"
    PLAN = "PLAN"
    REPLAN = "REPLAN"
    STOP = "STOP"
    CANCEL = "CANCEL"


class Decision(Frozen):
    """One decision of the controller, with its reason."""

    kind: DecisionKind
    """What."""
    rule: str = Field(max_length=60)
    """Rule that fired."""
    sentence: Line
    """Why, for a person."""
    outcome: Outcome | None = None
    """The run's end, where the kind is FINISH, STOP or CANCEL."""


class EventKind(StrEnum):
    """Kinds of records that a run keeps of itself."""

    SYSTEM_PROMPT = "system_prompt"
    """What every prompt of the run is made from: goal, instructions, tools, templates."""
    MESSAGE = "message"
    """A message of a person, received or refused."""
    PROPOSAL = "proposal"
    """What the executor wants to do, and why."""
    ACTION = "action"
    """One action, decided; exactly one observation answers it."""
    OBSERVATION = "observation"
    """What is known after an action."""
    AGENT_ERROR = "agent_error"
    """A model's reply that could not be used."""
    PLAN_VERSION = "plan_version"
    """A version of the plan, or that there is no usable one."""
    VERDICT = "verdict"
    """A judgement on a step."""
    CHECKS = "checks"
    """The result of one check that ran, of a requirement or of the evaluator."""
    DECISION = "decision"
    """A decision of the controller."""
    CALL = "call"
    """A call that ended without an answer."""
    PAUSE = "pause"
    """The run stands still for a person, or goes on."""
    STATE_CHANGE = "state_change"
    """The run moves on: its status, its workspace, a step, its end."""
    NOTE = "note"
    """Anything else."""


class Source(StrEnum):
    """Who an event comes from."""

    USER = "user"
    AGENT = "agent"
    ENVIRONMENT = "environment"
    JUDGE = "judge"
    CONTROLLER = "controller"


class Ref(StrEnum):
    """What an event can speak of."""

    ACTION = "action"
    """Event id of the action that an observation answers."""
    OBSERVATION = "observation"
    """Id of the observation, as ``o17``: at the action that it will answer, and at the observation."""
    EFFECT = "effect"
    """Key in the ledger."""
    FRAME = "frame"
    """Id of the frame at which a check ran."""
    CITES = "cites"
    """What a verdict cites, as ``o17`` or ``f18``."""
    SENDER = "sender"
    """The sender's own id of a message."""
    GOAL = "goal"
    """Artifact of the goal, as ``sha256:<hex>``."""
    INSTRUCTIONS = "instructions"
    """Artifact of the standing instructions."""
    TOOLS = "tools"
    """Artifact of the tools' description."""


class Event(Frozen):
    """One record of the run; the newest are in the state, older ones in the archive's chunks."""

    id: str = Field(pattern=r"^e[0-9]{1,18}$")
    """As ``e19``."""
    kind: EventKind
    """Which kind."""
    source: Source
    """Who it comes from."""
    visible: bool
    """Whether it can enter a prompt of planner or executor; judges see frames and outputs only."""
    place: str = Field(max_length=60)
    """Plan, step, iteration or action that it belongs to."""
    at: str
    """ISO 8601, UTC, workflow time."""
    text: str = Field(max_length=2500)
    """What happened, for a person."""
    ok: bool | None = None
    """Good or bad, where that can be said."""
    refs: dict[Ref, str] = Field(default_factory=dict)
    """What it speaks of."""
    plan: PlanVersion | None = None
    """The version as it was written, where one was; without the done steps that it carried."""

    @cached_property
    def size_bytes(self) -> int:
        """About how long the event is in JSON: what may be long of it is counted. Asked for again before every call."""
        plan = len(self.plan.model_dump_json().encode()) if self.plan else 0
        return json_bytes(self.text) + sum(map(json_bytes, self.refs.values())) + plan


class Frames(Frozen):
    """The two points in time of the current iteration."""

    t1: Frame | None = None
    """Before acting; the last frame taken, at an iteration's head."""
    t2: Frame | None = None
    """After acting."""
    judged_not_done: str | None = None
    """Step id and fingerprint that ``is_step_done`` last answered with no: asking again costs nothing."""
    checked: str | None = None
    """Fingerprint at which the requirement checks last ran."""


class Counters(Frozen):
    """One counter for each kind of id, over the whole chain."""

    seq: Count = 0
    """Effects, observations, frames, events: everything that is numbered in one row."""
    chunks: Count = 0
    """Archive chunks written."""
    runs: Count = 1
    """Runs of the chain."""
    ambiguous_calls: Count = 0
    """Model calls that ended ambiguous."""
    unusable_replies: Count = 0
    """Model replies that could not be used."""
    unknown_effects: Count = 0
    """Actions that ended unknown."""


class AgentState(Frozen):
    """Everything that a task remembers. A query returns it and continue-as-new carries it."""

    status: Status = Status.PLANNING
    """What the run is doing."""
    started_at: str
    """ISO 8601, UTC: start of the chain, workflow time."""
    goal: TextRef | None = None
    """The goal's text, once it is in the artifact store."""
    instructions: TextRef | None = None
    """The standing instructions, likewise."""
    tool_guide: TextRef | None = None
    """The tools' description for prompts, likewise."""
    prompts: tuple[PromptRef, ...] = ()
    """The prompt templates of this run with their versions."""
    workspace: Workspace | None = None
    """The open workspace."""
    requirements: tuple[RequirementState, ...]
    """Requirements with their latest evidence."""
    plans: tuple[PlanVersion, ...] = ()
    """The latest versions, oldest first; superseded ones without the done steps that they had carried."""
    versions_used: Count = 0
    """Plan versions asked for, those without a usable reply included: what the outermost bound counts."""
    cursor: Cursor = Cursor()
    """Where the run is in the last version."""
    frames: Frames = Frames()
    """The current frames."""
    observations: tuple[Observation, ...] = ()
    """The latest observations of the current step, newest last."""
    action_summary: TextRef | None = None
    """Summary of the last iteration's actions, for the executor and the planner; judges never see it."""
    last_verdict: Verdict | None = None
    """The last verdict on the current step."""
    spend: Spend = Spend()
    """What the chain has spent: the greater of own count and ledger."""
    reserved: Spend = Spend()
    """Reservations of the calls that are open now."""
    counters: Counters = Counters()
    """Counters."""
    paused_by: Line | None = None
    """Who paused and why, while paused."""
    cancel: Received | None = None
    """The accepted request to cancel."""
    steering: tuple[Received, ...] = ()
    """The latest steering messages, which planner and executor see; all are among the events."""
    messages: MessageCounts = MessageCounts()
    """How many messages came."""
    seen_ids: tuple[str, ...] = ()
    """Senders' ids of the latest messages, to receive each once."""
    decisions: tuple[Decision, ...] = ()
    """The latest decisions, newest last."""
    events: tuple[Event, ...] = ()
    """The latest records, newest last; older ones are in ``archive``."""
    archive: tuple[BlobRef, ...] = ()
    """Chunks of older records, in order."""
    outcome: Outcome | None = None
    """The end, once decided."""


class TaskInput(Frozen):
    """Input of the AgentTask workflow. A field that the worker does not know is refused, never ignored."""

    contract: Annotated[int, Field(ge=1, le=CONTRACT_VERSION)] = 1
    """Version of the contract that the sender has written it for."""
    spec: TaskSpec
    """What to do."""
    state: AgentState | None = None
    """Carried from the run before; None at the start of a chain."""
    handed_over_by: Annotated[str, Field(max_length=100)] | None = None
    """Run id of the run before, where ``state`` is its; a state that comes otherwise counts for nothing."""


class Summary(Frozen):
    """The state in a few lines, for queries and consoles."""

    name: str
    """The task's name."""
    status: str
    """Status, or the outcome's label once it has ended."""
    goal: str
    """The goal's beginning."""
    place: str
    """Step or iteration."""
    step_title: str
    """What the current step is."""
    plan_version: Count
    """Version in use."""
    steps_done: Count
    """Steps of it that are done."""
    steps_total: Count
    """Steps of it."""
    requirements_met: Count
    """Requirements that hold."""
    requirements_total: Count
    """All requirements."""
    spend: Spend
    """What the chain has spent."""
    messages: MessageCounts
    """How many messages came."""
    rehearsed: bool
    """Whether any tier is answered by a script instead of a model."""
    now: str
    """What happens at the moment, in a sentence."""


class TaskResult(Frozen):
    """Result of the AgentTask workflow."""

    outcome: Outcome
    """How it ended."""
    summary: Summary
    """The end in a few lines."""
    requirements: tuple[RequirementState, ...]
    """Requirements with their last evidence."""
    evaluator: tuple[CheckResult, ...] = ()
    """What the hidden evaluator found."""
    state: BlobRef | None = None
    """The final state in the artifact store."""
    difference: TextRef | None = None
    """What changed in the workspace, as a unified difference."""
    workspace_root: str = ""
    """Where the files are."""
