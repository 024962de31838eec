"""AgentTask: one agent task, from plan to verified result, as one durable workflow."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import NoReturn

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RawValue

from schemas.base import clip
from schemas.checks import RequirementState
from schemas.contract import STATE_QUERY, SUMMARY_QUERY, TASK_WORKFLOW
from schemas.messages import Note
from schemas.outcome import Outcome, OutcomeKind
from schemas.state import AgentState, DecisionKind, EventKind, Summary, TaskInput, TaskResult
from schemas.task import TaskSpec
from workflows.calls import Calls, Ended
from workflows.closing import Closing
from workflows.control.decision import decide
from workflows.control.receive import explain, receive
from workflows.control.records import KEPT_EVENTS
from workflows.intake import handed_over, read_input
from workflows.journal import Journal, now
from workflows.outages import HandOver
from workflows.steps import Steps

MAX_NOTE_BYTES = 20_000  # a note of the longest texts, whatever characters they hold
QUIET_SECONDS = 0.1
CANCELLED_BY_TEMPORAL = Outcome(kind=OutcomeKind.CANCELLED, detail="Cancelled through Temporal")


# What our own code raises only by a fault, and what an input that is no TaskInput gives: the run fails with it.
# Everything else, a change that breaks replay above all, lets the workflow task wait for a mended worker.
FAULTS = (ValueError, TypeError, LookupError, AttributeError, AssertionError, StopIteration, RuntimeError)


@workflow.defn(name=TASK_WORKFLOW, failure_exception_types=FAULTS)
class AgentTask:
    """Plan, act, validate and replan until the requirements hold or a bound is reached."""

    @workflow.init
    def __init__(self, raw: RawValue) -> None:
        """Take the spec, and the state that the run before left; nobody else's word counts for what has happened."""
        task = read_input(raw)
        carried = task.state if handed_over(task) else None
        self.journal = Journal(task.spec, carried or initial_state(task.spec))
        self.calls = Calls(self.journal)
        self.steps = Steps(self.calls)
        self.closing = Closing(self.calls)
        self.history_at_message = 0

    @workflow.run
    async def run(self, raw: RawValue) -> TaskResult:
        """Run the task to its typed outcome."""
        try:
            outcome = await self.pursue()
        except asyncio.CancelledError:
            await self.close(CANCELLED_BY_TEMPORAL)
            raise
        except FAULTS as fault:  # closed and recorded like every other end
            detail = clip(f"a fault of Surefoot: {type(fault).__name__}: {fault}")
            outcome = Outcome(kind=OutcomeKind.FAILED, error_type="Fault", detail=detail)
        return await self.close(outcome)

    async def close(self, outcome: Outcome) -> TaskResult:
        """Close once; Temporal's own cancel, when it comes now, only has it wait for no outage any more."""
        self.calls.outages.ending = True
        closing = asyncio.ensure_future(self.last_things(outcome))
        while not closing.done():
            try:
                await workflow.wait_condition(closing.done)
            except asyncio.CancelledError:
                self.calls.outages.hurried = True
        return closing.result()

    async def last_things(self, outcome: Outcome) -> TaskResult:
        """Close, and leave in a quiet moment."""
        try:
            return await self.closing.close(outcome)
        finally:
            await self.quiet()

    async def quiet(self) -> None:
        """Wait for a workflow task that brought no message: only there a run ends or hands over.

        Temporal refuses the end of a run while a message is on its way, and has the whole history replayed. A run that
        tries again right after a replay never ends where messages come faster than that; after a timer, which no
        message hinders, the next attempt is a short one.
        """
        while self.history_at_message == workflow.info().get_current_history_length():
            await workflow.sleep(QUIET_SECONDS)

    async def pursue(self) -> Outcome:
        """Go round the loop until it ends, or hand over to the next run of the chain."""
        try:
            try:
                await self.loop()
            except HandOver:
                await self.hand_over()
        except Ended as end:
            self.calls.outages.ending = True
            return await self.closing.last_look(end.decision)

    async def loop(self) -> NoReturn:
        """Decide and do, until a decision ends the run. Raises: Ended, HandOver."""
        await self.steps.begin()
        while True:
            await self.calls.ready(at_head=True)
            decision = decide(self.journal.spec, self.journal.state)
            match decision.kind:
                case DecisionKind.CONTINUE:
                    await self.steps.attempt()
                case DecisionKind.PLAN | DecisionKind.REPLAN:
                    await self.steps.write_plan(decision)
                case _:
                    raise Ended(decision)

    async def hand_over(self) -> NoReturn:
        """Continue as new with the whole state, and with every message that has arrived."""
        self.journal.note(EventKind.STATE_CHANGE, f"run {self.journal.state.counters.runs} of the chain hands over")
        self.calls.outages.handing_over = True
        with contextlib.suppress(HandOver):  # the archive is away: the next run takes the events along
            await self.calls.archive(KEPT_EVENTS)
        await workflow.wait_condition(workflow.all_handlers_finished)
        await self.quiet()
        self.journal.count(runs=1)
        workflow.continue_as_new(
            TaskInput(spec=self.journal.spec, state=self.journal.state, handed_over_by=workflow.info().run_id)
        )

    @workflow.signal(dynamic=True)
    def receive(self, name: str, args: Sequence[RawValue]) -> None:
        """Receive any signal. What cannot be decoded is a recorded refusal: it must never wedge the run."""
        self.history_at_message = workflow.info().get_current_history_length()
        note, problem = decode_note(args)
        self.journal.state = receive(self.journal.state, name, note, problem, now())

    @workflow.query(name=STATE_QUERY)
    def state(self) -> AgentState:
        """Return everything that the run remembers."""
        return self.journal.state

    @workflow.query(name=SUMMARY_QUERY)
    def summary(self) -> Summary:
        """Return the state in a few lines."""
        return self.journal.summary()


def initial_state(spec: TaskSpec) -> AgentState:
    """Return the state of a task that has done nothing yet."""
    requirements = tuple(RequirementState(id=item.id, mandatory=item.mandatory) for item in spec.requirements)
    return AgentState(started_at=now(), requirements=requirements)


def decode_note(args: Sequence[RawValue]) -> tuple[Note | None, str]:
    """Return the signal's one argument, or None and what is wrong with it."""
    if len(args) > 1:
        return None, f"one argument expected, got {len(args)}"
    if not args:
        return Note(), ""
    size = args[0].payload.ByteSize()
    if size > MAX_NOTE_BYTES:
        return None, f"the argument has {size:,} bytes, more than {MAX_NOTE_BYTES:,}"
    try:
        note = workflow.payload_converter().from_payload(args[0].payload, Note)
    except ValidationError as error:
        return None, explain(error)
    except Exception as error:  # whatever a converter raises on foreign bytes: the message is refused, the run goes on
        return None, clip(f"the argument cannot be decoded: {error}", 300)
    # a payload of raw bytes, or of nothing, decodes to that whatever type was asked for
    return (note, "") if isinstance(note, Note) else (None, "one JSON object expected, with text, by and id")
