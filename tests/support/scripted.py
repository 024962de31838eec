"""Scripted activities: fakes registered under the real names, for tests of the workflow alone.

Nothing here asks a model or touches a file. What each node answers is a plain function of the request.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from activities.registration import implements
from schemas import contract
from schemas.actions import Observation, ObservationStatus, ProposedAction
from schemas.budget import Spend, add
from schemas.calls import (
    ActionsReply,
    ModelRequest,
    PlanReply,
    ProblemKind,
    PromptRef,
    ReplyProblem,
    TextReply,
    Verdict,
    VerdictReply,
)
from schemas.checks import CheckResult, FileCheck, Requirement
from schemas.effects import CallReceipt, CallStatus, EffectClass, LedgerTotals
from schemas.errors import ArtifactMissing, SurefootError
from schemas.frames import Frame
from schemas.models import ModelChoice, Node, Tier
from schemas.plan import PlanDraft, StepDraft
from schemas.pricing import Price
from schemas.task import TaskSpec
from schemas.texts import BlobRef, TextRef, estimate_tokens
from schemas.workspace import (
    ActionReply,
    ActionRequest,
    ArchiveReply,
    ArchiveRequest,
    ChecksReply,
    CloseWorkspaceReply,
    CloseWorkspaceRequest,
    EvaluateRequest,
    OpenRunReply,
    OpenRunRequest,
    OpenWorkspaceRequest,
    RecordRunReply,
    RecordRunRequest,
    RunChecksRequest,
    SnapshotRequest,
    Workspace,
    WorkspaceSpec,
)

COST = Spend(microusd=100, tokens=30, model_calls=1)


def text_ref(text: str) -> TextRef:
    """Return a reference to ``text``; no store holds it."""
    data = text.encode()
    return TextRef(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), tokens=estimate_tokens(text))


def blob_ref(text: str) -> BlobRef:
    """Return a reference to the bytes of ``text``."""
    return BlobRef(sha256=hashlib.sha256(text.encode()).hexdigest(), size_bytes=len(text))


def requirement(name: str = "done", **more: Any) -> Requirement:
    """Return a requirement; scripted checks do not look at its check."""
    check = FileCheck(kind="file", path="out.txt")
    return Requirement(id=name, text=f"{name} must hold", check=check, **more)


def spec(queue: str, **changes: Any) -> TaskSpec:
    """Return a small task whose workspace is served by ``queue``."""
    price = Price(input_microusd_per_mtok=1_000_000, output_microusd_per_mtok=2_000_000)
    choice = ModelChoice(model="scripted", price=price, max_output_tokens=100)
    fields: dict[str, Any] = {
        "name": "scripted",
        "goal": "Make it so",
        "requirements": (requirement(),),
        "models": dict.fromkeys(Tier, choice),
        "tools": ("run",),
        "workspace": WorkspaceSpec(queue=queue, files={}),
    }
    return TaskSpec(**{**fields, **changes})


def plan_of(*titles: str) -> Callable[[ModelRequest], PlanDraft | None]:
    """Return a planner that always writes these steps."""
    steps = tuple(StepDraft(title=title, instruction=text_ref(title)) for title in titles)
    return lambda request: PlanDraft(why="scripted", steps=steps)


def action(preview: str = "true", **more: Any) -> ProposedAction:
    """Return a valid proposed action."""
    known = {"effect_class": EffectClass.NONE, "irreversible": False, **more}
    return ProposedAction(tool="run", arguments=text_ref(preview), preview=preview, **known)


def reserved_by(request: ModelRequest) -> Spend:
    """Return what the request has reserved."""
    return Spend(microusd=request.reservation.microusd, tokens=request.reservation.tokens, model_calls=1)


@dataclass
class World:
    """Scripted activities with a record of what was asked and done."""

    plan: Callable[[ModelRequest], PlanDraft | None] = field(default_factory=lambda: plan_of("only step"))
    verdict: Callable[[ModelRequest], bool | None] = lambda request: request.node is not Node.IS_STEP_DONE
    actions: Callable[[ModelRequest], tuple[ProposedAction, ...]] = lambda request: (action(),)
    met: Callable[["World"], bool] = lambda world: len(world.performed) > 0
    more: bool = False
    seconds: float = 0.0
    """How long a performed action takes."""
    closing_seconds: float = 0.0
    evaluator_fails: bool = False
    status: Callable[["World", ModelRequest], CallStatus] = lambda world, request: CallStatus.ANSWERED
    usable: Callable[[ModelRequest], bool] = lambda request: True
    error: SurefootError | None = None
    """Raised by every model node."""
    reconciled: list[ActionRequest] = field(default_factory=list)
    lose_attempts: int = 0
    """So many attempts at an action fail without a word, as when their worker is killed."""
    reconciles_as: ObservationStatus = ObservationStatus.UNKNOWN
    asked: list[ModelRequest] = field(default_factory=list)
    performed: list[ActionRequest] = field(default_factory=list)
    interrupted: int = 0
    chunks: list[ArchiveRequest] = field(default_factory=list)
    recorded: list[RecordRunRequest] = field(default_factory=list)
    closed: int = 0
    chain: Spend = field(default_factory=Spend)

    def nodes(self) -> list[str]:
        """Return the nodes in the order in which they were asked."""
        return [request.node.value for request in self.asked]

    def registered(self) -> list[Callable[..., Any]]:
        """Return all activities, for a worker."""
        return [getattr(self, f"on_{ref.name}") for ref in contract.all_refs()]

    def _answer(self, request: ModelRequest) -> CallReceipt:
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        status = self.status(self, request)
        reserved = reserved_by(request)
        charges = {CallStatus.ANSWERED: COST, CallStatus.AMBIGUOUS: reserved, CallStatus.LOST: reserved}
        charged = charges.get(status, Spend())
        self.chain = add(self.chain, charged)
        return CallReceipt(
            status=status,
            detail="tokens" if status is CallStatus.OVER_LIMIT else "",
            charged=charged,
            chain=self.chain,
            raw=text_ref("raw"),
            needed_input_tokens=request.reservation.input_tokens + 500,
        )

    def _plan(self, request: ModelRequest) -> PlanReply:
        receipt = self._answer(request)
        answered = receipt.status is CallStatus.ANSWERED and self.usable(request)
        plan = self.plan(request) if answered else None
        problem = None if plan else ReplyProblem(kind=ProblemKind.NOT_JSON, detail="scripted: not JSON")
        return PlanReply(receipt=receipt, plan=plan, problem=problem)

    def _verdict(self, request: ModelRequest) -> VerdictReply:
        receipt, yes = self._answer(request), self.verdict(request)
        if yes is None:
            return VerdictReply(receipt=receipt)
        return VerdictReply(receipt=receipt, verdict=Verdict(result=yes, claimed=yes, reason=f"scripted {yes}"))

    def _text(self, request: ModelRequest) -> TextReply:
        return TextReply(receipt=self._answer(request), text=text_ref("summary"), line="summary")

    @implements(contract.PLAN)
    async def on_plan(self, request: ModelRequest) -> PlanReply:
        return self._plan(request)

    @implements(contract.REPLAN)
    async def on_replan(self, request: ModelRequest) -> PlanReply:
        return self._plan(request)

    @implements(contract.IS_STEP_DONE)
    async def on_is_step_done(self, request: ModelRequest) -> VerdictReply:
        return self._verdict(request)

    @implements(contract.VALIDATE_PLAN_STEP)
    async def on_validate_plan_step(self, request: ModelRequest) -> VerdictReply:
        return self._verdict(request)

    @implements(contract.IS_STEP_DONE_BY_VALIDATION)
    async def on_is_step_done_by_validation(self, request: ModelRequest) -> VerdictReply:
        return self._verdict(request)

    @implements(contract.SUMMARIZE_ACTIONS)
    async def on_summarize_actions(self, request: ModelRequest) -> TextReply:
        return self._text(request)

    @implements(contract.SUMMARIZE_PLAN_STEP)
    async def on_summarize_plan_step(self, request: ModelRequest) -> TextReply:
        return self._text(request)

    @implements(contract.PROPOSE_ACTION)
    async def on_propose_action(self, request: ModelRequest) -> ActionsReply:
        receipt = self._answer(request)
        return ActionsReply(receipt=receipt, thought="scripted", actions=self.actions(request), more=self.more)

    @implements(contract.OPEN_RUN)
    async def on_open_run(self, request: OpenRunRequest) -> OpenRunReply:
        prompts = tuple(PromptRef(node=node, version="scripted", template=text_ref(node)) for node in Node)
        return OpenRunReply(
            goal=text_ref(request.goal),
            instructions=text_ref(request.instructions),
            tool_guide=text_ref("run"),
            prompts=prompts,
            totals=LedgerTotals(spend=self.chain),
        )

    @implements(contract.ARCHIVE_RUN)
    async def on_archive_run(self, request: ArchiveRequest) -> ArchiveReply:
        self.chunks.append(request)
        return ArchiveReply(chunk=blob_ref(request.records_jsonl))

    @implements(contract.RECORD_RUN)
    async def on_record_run(self, request: RecordRunRequest) -> RecordRunReply:
        self.recorded.append(request)
        return RecordRunReply(state=blob_ref(request.state_json), totals=LedgerTotals(spend=self.chain))

    @implements(contract.OPEN_WORKSPACE)
    async def on_open_workspace(self, request: OpenWorkspaceRequest) -> Workspace:
        given = request.spec
        manifest = blob_ref("seed")
        return Workspace(
            name="w", kind=given.kind, queue=given.queue, root="/w", limits=given.limits, seed_manifest=manifest
        )

    @implements(contract.SNAPSHOT)
    async def on_snapshot(self, request: SnapshotRequest) -> Frame:
        seen = f"{len(self.performed)} actions"
        return Frame(
            id=request.frame_id,
            fingerprint=hashlib.sha256(seen.encode()).hexdigest(),
            text=text_ref(seen),
            manifest=blob_ref(seen),
            files=1,
        )

    @implements(contract.PERFORM_ACTION)
    async def on_perform_action(self, request: ActionRequest) -> ActionReply:
        self.performed.append(request)
        if self.lose_attempts > 0:
            self.lose_attempts -= 1
            raise RuntimeError("scripted: the attempt is lost")
        status = ObservationStatus.SUCCEEDED
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.interrupted += 1
            status = ObservationStatus.INTERRUPTED
        return self._acted(request, status)

    @implements(contract.RECONCILE_ACTION)
    async def on_reconcile_action(self, request: ActionRequest) -> ActionReply:
        self.reconciled.append(request)
        return self._acted(request, self.reconciles_as)

    def _acted(self, request: ActionRequest, status: ObservationStatus) -> ActionReply:
        self.chain = add(self.chain, Spend(tool_calls=1))
        observation = Observation(
            id=request.observation_id,
            action_id=request.action_id,
            tool=request.action.tool,
            preview=request.action.preview,
            status=status,
            effect_id=request.key.effect_id,
        )
        return ActionReply(observation=observation, charged=Spend(tool_calls=1), chain=self.chain)

    @implements(contract.RUN_CHECKS)
    async def on_run_checks(self, request: RunChecksRequest) -> ChecksReply:
        met = self.met(self)
        results = tuple(CheckResult(id=item.id, met=met, detail=f"scripted {met}") for item in request.requirements)
        return ChecksReply(results=results)

    @implements(contract.EVALUATE)
    async def on_evaluate(self, request: EvaluateRequest) -> ChecksReply:
        if self.evaluator_fails:
            raise ArtifactMissing("scripted: the seed's manifest is gone")
        met = self.met(self)
        count = len(request.evaluator)
        return ChecksReply(
            results=tuple(CheckResult(id=f"evaluator.{n + 1}", met=met, detail="scripted") for n in range(count))
        )

    @implements(contract.CLOSE_WORKSPACE)
    async def on_close_workspace(self, request: CloseWorkspaceRequest) -> CloseWorkspaceReply:
        self.closed += 1
        await asyncio.sleep(self.closing_seconds)
        return CloseWorkspaceReply(killed=0)
