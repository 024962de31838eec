"""The end of a run: a last look, the hidden evaluator, the workspace closed, the outcome recorded and published."""

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from schemas import contract
from schemas.base import clip, rebuild
from schemas.budget import add, greater
from schemas.checks import CheckResult, longest_seconds
from schemas.outcome import Outcome, OutcomeKind, Status
from schemas.state import Decision, DecisionKind, EventKind, TaskResult
from schemas.texts import BlobRef, TextRef
from schemas.workspace import CloseWorkspaceRequest, EvaluateRequest, RecordRunRequest
from workflows.calls import START_WITHIN_SECONDS, Calls, Ended
from workflows.control import records
from workflows.control.decision import current_step, decide, unmet
from workflows.control.planning import step_done
from workflows.journal import now
from workflows.looking import Looking
from workflows.steps import MUST_FAIL


class Closing:
    """Ends a run on every path; what fails here is noted and changes no outcome."""

    def __init__(self, calls: Calls) -> None:
        """Close through the run's calls."""
        self.calls = calls
        self.journal = calls.journal
        self.looking = Looking(calls)

    async def last_look(self, decision: Decision) -> Outcome:
        """Return the outcome of ``decision``, after the free checks that come before any stop."""
        may_hold = decision.kind is DecisionKind.STOP and decision.rule != MUST_FAIL
        if may_hold and self.journal.state.workspace is not None:
            try:
                await self.looking.check(await self.looking.frame())
            except Ended as end:
                self.journal.note(EventKind.NOTE, f"no last look: {end.decision.sentence}", ok=False)
            if not unmet(self.journal.state):
                decision = decide(self.journal.spec, rebuild(self.journal.state, cancel=None))
        self.journal.note(EventKind.DECISION, f"{decision.kind.value} ({decision.rule}): {decision.sentence}")
        self.journal.change(decisions=(decision,))
        assert decision.outcome is not None, "only a decision with an outcome ends a run"
        return decision.outcome

    async def close(self, outcome: Outcome) -> TaskResult:
        """Evaluate, clean up, record and publish; return the result, or fail the workflow with it where it FAILED."""
        self.journal.change(outcome=outcome)
        if outcome.kind is OutcomeKind.FINISHED and current_step(self.journal.state):
            self._finish_step()
        self.journal.enter(Status.CLOSING)
        self.journal.say(f"closing: {outcome.label}")
        results = await self._evaluate()
        if self.journal.spec.evaluator:  # one that could not run has verified nothing
            finished = outcome.kind is OutcomeKind.FINISHED and bool(results)
            outcome = rebuild(outcome, verified=finished and all(result.met for result in results))
        difference = await self._close_workspace()
        self.journal.change(outcome=outcome)
        self._note_outcome(outcome)
        state = await self._record(outcome, results, difference)
        self.journal.publish_outcome(outcome)
        workspace = self.journal.state.workspace
        result = TaskResult(
            outcome=outcome,
            summary=rebuild(self.journal.summary(), status=outcome.label),
            requirements=self.journal.state.requirements,
            evaluator=results,
            state=state,
            difference=difference,
            workspace_root=workspace.root if workspace else "",
        )
        if outcome.kind is OutcomeKind.FAILED:
            raise ApplicationError(outcome.detail, result, type=outcome.error_type, non_retryable=True)
        return result

    def _finish_step(self) -> None:
        """Count the current step as done: the requirements hold, so nothing of it is left to do."""
        before, step = self.journal.state, current_step(self.journal.state)
        assert step is not None, "only a step that exists is finished"
        self.journal.state = rebuild(step_done(before, None), observations=before.observations)
        text = f"{step.id} {step.title}: done, the requirements hold"
        self.journal.note(EventKind.STATE_CHANGE, text, place=step.id, ok=True)

    def _note_outcome(self, outcome: Outcome) -> None:
        finished = outcome.kind is OutcomeKind.FINISHED
        said = outcome.verified if finished else None  # what did not finish cannot be verified
        verified = {True: ", verified", False: ", but the evaluator says no", None: ""}[said]
        text = f"{outcome.label}{verified}: {outcome.detail}"
        self.journal.note(EventKind.STATE_CHANGE, text, ok=finished and outcome.verified is not False)

    async def _evaluate(self) -> tuple[CheckResult, ...]:
        spec, workspace = self.journal.spec, self.journal.state.workspace
        if not spec.evaluator or workspace is None:
            return ()
        request = EvaluateRequest(workspace=workspace, evaluator=spec.evaluator)
        try:
            reply = await self.calls.execute(
                contract.EVALUATE,
                request,
                extra_seconds=longest_seconds(spec.evaluator),
                start_within_seconds=START_WITHIN_SECONDS,
            )
            for result in reply.results:
                met = "holds" if result.met else "does not hold"
                text = f"{result.id} {met}: {result.detail}"
                self.journal.note(EventKind.CHECKS, text, place="evaluator", ok=result.met)
            return reply.results
        except ActivityError as error:
            self.journal.note(EventKind.NOTE, f"the evaluator could not run: {error.cause or error}", ok=False)
            return ()

    async def _close_workspace(self) -> TextRef | None:
        workspace = self.journal.state.workspace
        if workspace is None:
            return None
        request = CloseWorkspaceRequest(workspace=workspace, first_run_id=workflow.info().first_execution_run_id)
        try:
            reply = await self.calls.execute(
                contract.CLOSE_WORKSPACE, request, start_within_seconds=START_WITHIN_SECONDS
            )
            return reply.difference
        except ActivityError as error:
            self.journal.note(EventKind.NOTE, f"the workspace was not closed: {error.cause or error}", ok=False)
            return None

    async def _record(
        self, outcome: Outcome, results: tuple[CheckResult, ...], difference: TextRef | None
    ) -> BlobRef | None:
        """Write the run's row, and all its events to the archive; the ledger's total has the last word."""
        state, info = self.journal.state, workflow.info()
        try:
            await self.calls.archive(records.KEPT_EVENTS)
            state = self.journal.state
            reply = await self.calls.execute(
                contract.RECORD_RUN,
                RecordRunRequest(
                    workflow_id=info.workflow_id,
                    run_id=info.run_id,
                    first_run_id=info.first_execution_run_id,
                    name=self.journal.spec.name,
                    outcome=outcome,
                    spend=state.spend,
                    started_at=state.started_at,
                    ended_at=now(),
                    state_json=state.model_dump_json(),
                    summary=clip(f"{outcome.label}: {outcome.detail}"),
                    evaluator=results,
                    difference=difference,
                ),
            )
        except (ActivityError, Ended) as error:
            self.journal.note(EventKind.NOTE, clip(f"the run was not recorded: {error}"), ok=False)
            return None
        self.journal.change(spend=greater(state.spend, add(reply.totals.spend, reply.totals.open)))
        return reply.state
