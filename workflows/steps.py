"""The steps of the loop: begin, write a plan, attempt a step. Each reads as the graph does."""

import asyncio
from enum import StrEnum

from temporalio import workflow

from schemas import contract
from schemas.actions import Observation, ObservationStatus, ProposedAction
from schemas.base import clip, rebuild
from schemas.budget import add, greater
from schemas.calls import TextReply, Verdict, VerdictReply
from schemas.checks import Before
from schemas.ids import action_id, plan_id
from schemas.outcome import Status
from schemas.plan import Step
from schemas.state import AgentState, Decision, EventKind, Ref, Source
from schemas.workspace import OpenRunRequest, OpenWorkspaceRequest
from workflows.action_calls import ActionCalls
from workflows.calls import Calls, failed
from workflows.control import narrate, planning
from workflows.control.decision import current_step, unmet
from workflows.control.gate import gate
from workflows.looking import Looking
from workflows.model_calls import ModelCalls, both

MUST_FAIL = "must_fail"
KEPT_OBSERVATIONS = 40  # of the current step, in the state; the ledger has every action's
PLAN_TEXT = 800  # characters of a version's record; the version itself goes with it
NOTHING_DONE = "Nothing was done in this iteration and the frame is the same as before."
HALF_DONE = frozenset({ObservationStatus.UNKNOWN, ObservationStatus.INTERRUPTED, ObservationStatus.TIMED_OUT})


class Then(StrEnum):
    """What follows a batch of actions."""

    AS_PROPOSED = "as proposed"
    """All were performed; the executor has said whether it wants to go on."""
    ASK_AGAIN = "ask again"
    """One did not succeed, the rest was dropped: the executor decides anew."""
    LOOK = "look"
    """Nobody knows how far one got: the next frame decides."""


class Steps:
    """What the loop does between two decisions."""

    def __init__(self, calls: Calls) -> None:
        """Act through the run's calls."""
        self.calls = calls
        self.journal = calls.journal
        self.looking = Looking(calls)
        self.models = ModelCalls(calls)
        self.actions = ActionCalls(calls)

    @property
    def state(self) -> AgentState:
        """The run's state."""
        return self.journal.state

    async def begin(self) -> None:
        """Read the chain's total, freeze texts and prompts, open the workspace, look and check before any work."""
        await self._open_run()
        if self.state.workspace is not None:
            return
        self._note_prompts()
        self.journal.enter(Status.PLANNING)
        self.journal.say("opening the workspace")
        info = workflow.info()
        request = OpenWorkspaceRequest(
            workflow_id=info.workflow_id,
            first_run_id=info.first_execution_run_id,
            spec=self.journal.spec.workspace,
            secrets=self.journal.spec.secrets,
        )
        workspace = await self.calls.run(contract.OPEN_WORKSPACE, request)
        self.journal.change(workspace=workspace)
        self.journal.note(EventKind.STATE_CHANGE, f"workspace open: {workspace.kind.value} in {workspace.root}")
        await self._look()
        self._refuse_what_proves_nothing()

    async def write_plan(self, decision: Decision) -> None:
        """Write the first plan, or the next version with what was learned; an unusable reply uses up a version."""
        self.journal.enter(Status.PLANNING)
        first = not self.state.plans
        said = f"{decision.kind.value} ({decision.rule}): {decision.sentence}"
        self.journal.note(EventKind.DECISION, said, visible=not first)
        self.journal.say("planning" if first else f"replanning: {decision.sentence}")
        place = plan_id(self.state.plans[-1].version + 1 if self.state.plans else 1)
        ref = contract.PLAN if first else contract.REPLAN
        reply = await self.models.ask(ref, place, "" if first else decision.sentence)
        self.journal.change(versions_used=self.state.versions_used + 1)
        if reply.plan is None:
            why = reply.problem.detail if reply.problem else "no reply"
            self.journal.note(EventKind.PLAN_VERSION, f"no usable plan: {why}", place=place, ok=False)
            return
        learned = "" if first else decision.sentence
        self.journal.state = planning.new_version(self.journal.spec, self.state, reply.plan, learned)
        plan = planning.as_written(self.state.plans[-1])
        titles = "; ".join(f"{step.id} {step.title}" for step in plan.steps)
        text = clip(f"{plan.why} Steps: {titles}", PLAN_TEXT)
        self.journal.note(EventKind.PLAN_VERSION, text, place=place, ok=True, visible=True, plan=plan)

    async def attempt(self) -> None:
        """Make one iteration at the current step."""
        self.journal.enter(Status.RUNNING)
        step, place = self._step(), narrate.place_of(self.state)
        self.journal.say(f"{place} {step.title}")
        frames = self.state.frames
        self.journal.change(frames=rebuild(frames, t1=frames.t2 or frames.t1, t2=None))
        if self.state.frames.t1 is None:
            await self.looking.frame()
        if await self._is_done(step, place):
            await self._finish_step(place)
            return
        acted = await self._act(place)
        if not acted:
            await self._look()
        if unmet(self.state):  # otherwise the controller finishes the run, whatever anybody claims
            await self._judge(step, place, acted)

    async def _open_run(self) -> None:
        info, spec = workflow.info(), self.journal.spec
        request = OpenRunRequest(
            workflow_id=info.workflow_id,
            run_id=info.run_id,
            first_run_id=info.first_execution_run_id,
            goal="" if self.state.goal else spec.goal,
            instructions="" if self.state.goal else spec.instructions,
            tools=spec.tools,
            secrets=spec.secrets,
        )
        reply = await self.calls.run(contract.OPEN_RUN, request)
        chain = add(reply.totals.spend, reply.totals.open)  # no call of this run is open yet
        self.journal.change(spend=greater(self.state.spend, chain))
        if self.state.goal is None:
            self.journal.change(
                goal=reply.goal, instructions=reply.instructions, tool_guide=reply.tool_guide, prompts=reply.prompts
            )

    def _note_prompts(self) -> None:
        """Record what every prompt is made from; the templates' artifacts are in the state."""
        state = self.state
        texts = ((Ref.GOAL, state.goal), (Ref.INSTRUCTIONS, state.instructions), (Ref.TOOLS, state.tool_guide))
        refs = {ref: f"sha256:{text.sha256}" for ref, text in texts if text}
        versions = ", ".join(f"{item.node.value} {item.version}" for item in state.prompts)
        text = f"goal: {clip(self.journal.spec.goal, 300)} Templates: {versions}"
        self.journal.note(EventKind.SYSTEM_PROMPT, text, visible=True, refs=refs)

    def _refuse_what_proves_nothing(self) -> None:
        for requirement, known in zip(self.journal.spec.requirements, self.state.requirements, strict=True):
            if requirement.before is Before.MUST_FAIL and known.met:
                detail = f"{requirement.id} must fail before any work, but holds: {known.detail}"
                raise failed("RequirementAlreadyMet", detail, rule=MUST_FAIL)

    def _step(self) -> Step:
        step = current_step(self.state)
        assert step is not None, "the controller attempts only a step that exists"
        return step

    async def _is_done(self, step: Step, place: str) -> bool:
        """Ask whether the step is done already; free where a check or the last judgement answers."""
        if self._checks_say_done(step):
            text = f"{step.id} is done: its requirements hold now"
            self.journal.note(EventKind.VERDICT, text, ok=True, source=Source.CONTROLLER)
            return True
        if self.state.frames.judged_not_done == self._judged(step):
            return False
        reply = await self.models.ask(contract.IS_STEP_DONE, place)
        verdict = self._verdict("is_step_done", reply, place)
        if not verdict.result:
            self._not_done(step, verdict)
        return verdict.result

    def _checks_say_done(self, step: Step) -> bool:
        """Whether the step names requirements that did not hold before any work, and all of them hold now."""
        named = [item for item in self.state.requirements if item.id in step.requirements]
        moved = [item for item in named if not item.met_before]
        return bool(moved) and all(item.met for item in named)

    def _judged(self, step: Step) -> str:
        frame = self.state.frames.t2 or self.state.frames.t1
        return f"{step.id} {frame.fingerprint if frame else ''}"

    def _not_done(self, step: Step, verdict: Verdict) -> None:
        frames = rebuild(self.state.frames, judged_not_done=self._judged(step))
        self.journal.change(last_verdict=verdict, frames=frames)

    async def _act(self, place: str) -> bool:
        """Propose short batches, perform them, look at what came of each; return whether anything was decided."""
        bound = self.journal.spec.bounds.max_plan_step_actions
        acted = False
        while self.state.cursor.actions < bound:
            reply = await self.models.ask(contract.PROPOSE_ACTION, place)
            if not reply.actions:
                why = reply.problem.detail if reply.problem else reply.thought
                self.journal.note(EventKind.PROPOSAL, f"no action proposed: {why}", place=place, ok=False)
                return acted
            acted = True
            what = "; ".join(f"{action.tool} {action.preview}" for action in reply.actions)
            self.journal.note(EventKind.PROPOSAL, f"{reply.thought} → {what}", place=place)
            then = await self._perform_batch(reply.actions, place)
            await self._look()
            if not unmet(self.state) or then is Then.LOOK or (then is Then.AS_PROPOSED and not reply.more):
                return acted
        self.journal.note(EventKind.NOTE, f"max_plan_step_actions ({bound}) reached in this iteration", place=place)
        return acted

    async def _look(self) -> None:
        """Take a frame and run the free checks where it shows a change."""
        await self.looking.check_if_changed(await self.looking.frame())

    async def _perform_batch(self, actions: tuple[ProposedAction, ...], place: str) -> Then:
        """Gate and perform each action on its own; what follows one that did not succeed is dropped."""
        for index, action in enumerate(actions):
            observation = await self._perform(action, place)
            self.journal.change(observations=(*self.state.observations, observation)[-KEPT_OBSERVATIONS:])
            ok = observation.status is ObservationStatus.SUCCEEDED
            if observation.status in HALF_DONE:
                return Then.LOOK
            if not ok and (observation.status is not ObservationStatus.FAILED or index < len(actions) - 1):
                return Then.ASK_AGAIN
        return Then.AS_PROPOSED

    async def _perform(self, action: ProposedAction, place: str) -> Observation:
        number = self.state.cursor.actions + 1
        self.journal.change(cursor=rebuild(self.state.cursor, actions=number))
        where = action_id(place, number)
        refusal = gate(self.journal.spec, action)
        if refusal is not None:
            refused = Observation(
                id=self.journal.next_id("o"),
                action_id=where,
                tool=action.tool,
                preview=action.preview,
                status=refusal.status,
                summary=refusal.reason,
            )
            self.journal.observe(self.journal.begin_action(action, where, refused.id, None), refused)
            return refused
        workspace = self.state.workspace
        assert workspace is not None, "actions are performed in an open workspace"
        self.journal.say(f"{where} {action.tool} {clip(action.preview, 100)}")
        return await self.actions.perform(workspace, action, where)

    async def _judge(self, step: Step, place: str, acted: bool) -> None:
        """Validate the iteration; a yes is confirmed by a second, independent pessimist."""
        verdict = await self._validate(place, acted)
        if verdict.result:
            second, summary = await both(
                asyncio.ensure_future(self.models.ask(contract.IS_STEP_DONE_BY_VALIDATION, place)),
                asyncio.ensure_future(self.models.ask(contract.SUMMARIZE_PLAN_STEP, place)),
            )
            verdict = self._verdict("is_step_done_by_validation", second, place)
            if verdict.result:
                self._step_done(summary)
                return
        self._not_done(step, verdict)
        self.journal.state = planning.iteration_ended(self.state)

    async def _validate(self, place: str, acted: bool) -> Verdict:
        frames = self.state.frames
        same = frames.t1 is not None and frames.t2 is not None and frames.t1.fingerprint == frames.t2.fingerprint
        if same and not acted:
            self.journal.note(
                EventKind.VERDICT, NOTHING_DONE, place=place, ok=False, visible=True, source=Source.CONTROLLER
            )
            return Verdict(result=False, claimed=False, reason=NOTHING_DONE)
        reply, summary = await both(
            asyncio.ensure_future(self.models.ask(contract.VALIDATE_PLAN_STEP, place)),
            asyncio.ensure_future(self.models.ask(contract.SUMMARIZE_ACTIONS, place)),
        )
        self.journal.change(action_summary=summary.text)
        return self._verdict("validate_plan_step", reply, place)

    async def _finish_step(self, place: str) -> None:
        self._step_done(await self.models.ask(contract.SUMMARIZE_PLAN_STEP, place))

    def _step_done(self, summary: TextReply) -> None:
        step = self._step()
        self.journal.state = planning.step_done(self.state, summary.text)
        text = f"{step.id} {step.title}: done. {summary.line}".rstrip()
        self.journal.note(EventKind.STATE_CHANGE, text, place=step.id, ok=True, visible=True)

    def _verdict(self, node: str, reply: VerdictReply, place: str) -> Verdict:
        """Return the verdict; no usable one means not done, with that as the reason."""
        why = reply.problem.detail if reply.problem else "no reply"
        verdict = reply.verdict or Verdict(result=False, claimed=False, reason=clip(f"no usable verdict: {why}"))
        said = "done" if verdict.result else "not done"
        self.journal.note(
            EventKind.VERDICT,
            f"{node}: {said}. {verdict.reason}",
            place=place,
            ok=verdict.result,
            visible=not verdict.result,  # what is missing is told to planner and executor
            refs={Ref.CITES: verdict.citation.source} if verdict.citation else None,
        )
        return verdict
