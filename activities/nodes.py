"""The model's activities: each asks once and reads the reply by its own rules."""

import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from activities.model.calls import Answered, ModelCalls
from activities.model.citations import checked_verdict
from activities.model.port import Gateways
from activities.model.replies import read_reply
from activities.model.reply_schema import Offer, reply_schema
from activities.prompting import EVIDENCE
from activities.registration import implements
from activities.tools.registry import TOOLS, argument_schema, check_action
from schemas import contract
from schemas.actions import ProposedAction
from schemas.answers import ActionAnswer, ActionsAnswer, PlanAnswer, VerdictAnswer
from schemas.base import clip, rebuild
from schemas.calls import (
    ActionsReply,
    ModelRequest,
    PlanReply,
    ReplyProblem,
    TextReply,
    VerdictReply,
)
from schemas.effects import CallReceipt
from schemas.plan import PlanDraft, StepDraft
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger

MAX_TEXT_CHARACTERS = 4000
MAX_LINE_CHARACTERS = 160  # history has the line beside the text's reference: it is enough to tell what it is about
MAX_REQUIREMENT_ID = 40
Built = TypeVar("Built")


class ModelNodes:
    """Serves every activity that asks a model."""

    def __init__(self, gateways: Gateways, ledger: Ledger, artifacts: ArtifactStore) -> None:
        """Ask through ``gateways``, account in ``ledger``, keep texts in ``artifacts``."""
        self._calls = ModelCalls(gateways, ledger, artifacts)
        self._artifacts = artifacts

    @implements(contract.PLAN)
    async def plan(self, request: ModelRequest) -> PlanReply:
        """Write the first version of a plan."""
        return await self._ask(request, self._plan)

    @implements(contract.REPLAN)
    async def replan(self, request: ModelRequest) -> PlanReply:
        """Write a later version, from what was learned."""
        return await self._ask(request, self._plan)

    @implements(contract.IS_STEP_DONE)
    async def is_step_done(self, request: ModelRequest) -> VerdictReply:
        """Judge at an iteration's head whether the step is done already."""
        return await self._ask(request, self._verdict)

    @implements(contract.PROPOSE_ACTION)
    async def propose_action(self, request: ModelRequest) -> ActionsReply:
        """Propose a short batch of actions, each checked against its tool before anybody sees it."""
        return await self._ask(request, lambda answered: self._actions(request, answered))

    @implements(contract.SUMMARIZE_ACTIONS)
    async def summarize_actions(self, request: ModelRequest) -> TextReply:
        """Write down what an iteration's actions did."""
        return await self._ask(request, self._text)

    @implements(contract.VALIDATE_PLAN_STEP)
    async def validate_plan_step(self, request: ModelRequest) -> VerdictReply:
        """Judge from two frames whether the actions did the step."""
        return await self._ask(request, self._verdict)

    @implements(contract.IS_STEP_DONE_BY_VALIDATION)
    async def is_step_done_by_validation(self, request: ModelRequest) -> VerdictReply:
        """Judge once more, independently, a step that was judged done."""
        return await self._ask(request, self._verdict)

    @implements(contract.SUMMARIZE_PLAN_STEP)
    async def summarize_plan_step(self, request: ModelRequest) -> TextReply:
        """Write down what later steps need to know of this one."""
        return await self._ask(request, self._text)

    async def _ask(self, request: ModelRequest, build: Callable[[Answered], Built]) -> Built:
        offer = Offer(
            arguments={name: argument_schema(TOOLS[name]) for name in request.tools if name in TOOLS},
            max_actions=request.max_actions,
            labels=[text.label for text in request.context if text.label and text.slot in EVIDENCE],
        )
        # a provider's own strict mode refuses bounds on strings; a server of one's own keeps to them
        bounded = request.choice.api_base is not None
        schema = reply_schema(request.node, offer, bounded) if request.choice.structured_output else None
        return await self._calls.ask(request, schema, build)

    def _plan(self, answered: Answered) -> PlanReply:
        if answered.text is None:
            return PlanReply(receipt=answered.receipt)
        answer = read_reply(answered.text, answered.finish_reason, PlanAnswer)
        if isinstance(answer, ReplyProblem):
            return PlanReply(receipt=self._rejected(answered), problem=answer)
        with self._artifacts.together() as artifacts:
            steps = tuple(
                StepDraft(
                    title=step.title,
                    instruction=artifacts.put_text(step.instruction),
                    requirements=tuple(dict.fromkeys(name[:MAX_REQUIREMENT_ID] for name in step.requirements)),
                )
                for step in answer.steps
            )
        return PlanReply(receipt=answered.receipt, plan=PlanDraft(why=answer.why, steps=steps))

    def _actions(self, request: ModelRequest, answered: Answered) -> ActionsReply:
        if answered.text is None:
            return ActionsReply(receipt=answered.receipt)
        answer = read_reply(answered.text, answered.finish_reason, ActionsAnswer)
        if isinstance(answer, ReplyProblem):
            return ActionsReply(receipt=self._rejected(answered), problem=answer)
        kept = answer.actions[: request.max_actions]
        with self._artifacts.together() as artifacts:
            actions = tuple(_proposed(action, request.tools, artifacts) for action in kept)
        return ActionsReply(
            receipt=answered.receipt,
            thought=answer.thought,
            actions=actions,
            more=answer.more or len(kept) < len(answer.actions),
        )

    def _verdict(self, answered: Answered) -> VerdictReply:
        if answered.text is None:
            return VerdictReply(receipt=answered.receipt)
        answer = read_reply(answered.text, answered.finish_reason, VerdictAnswer)
        if isinstance(answer, ReplyProblem):
            return VerdictReply(receipt=self._rejected(answered), problem=answer)
        return VerdictReply(receipt=answered.receipt, verdict=checked_verdict(answer, answered.evidence))

    def _rejected(self, answered: Answered) -> CallReceipt:
        """Return the receipt of a reply that cannot be used, with the reply: a repair quotes it."""
        return rebuild(answered.receipt, raw=self._artifacts.put_text(answered.text) if answered.text else None)

    def _text(self, answered: Answered) -> TextReply:
        text = clip((answered.text or "").strip(), MAX_TEXT_CHARACTERS)
        if not text:
            return TextReply(receipt=answered.receipt)
        line = clip(" ".join(text.split()), MAX_LINE_CHARACTERS)
        return TextReply(receipt=answered.receipt, text=self._artifacts.put_text(text), line=line)


def _proposed(action: ActionAnswer, allowed: Sequence[str], artifacts: ArtifactStore) -> ProposedAction:
    arguments = json.dumps(action.arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    checked = check_action(action.tool, arguments, tuple(allowed))
    invalid = _masked(arguments, artifacts) or checked.invalid
    return ProposedAction(
        tool=action.tool,
        arguments=artifacts.put_text(arguments),
        preview=clip(checked.preview, 240),
        effect_class=checked.effect_class,
        irreversible=checked.irreversible,
        invalid=None if invalid is None else clip(invalid),
    )


def _masked(arguments: str, artifacts: ArtifactStore) -> str | None:
    """Return why arguments with a secret's mask are not performed: what was proposed was something else."""
    names = artifacts.secrets.labels_in(arguments)
    if not names:
        return None
    variables = ", ".join(f"${name}" for name in names)
    return (
        f"the arguments hold the value or the mask of secret {', '.join(names)}, which cannot stand there: use the "
        f"environment variable in a command of run, {variables} where the task names that secret"
    )
