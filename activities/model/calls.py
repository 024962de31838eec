"""One model call as an effect: claimed in the ledger, sent once, settled with what it cost."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from activities.model.port import AmbiguousCall, Completion, CompletionReply, Gateway, Gateways
from activities.prompting import Prompt, render
from activities.telemetry import chat, count_call, count_refused_call
from schemas.base import clip, json_bytes
from schemas.budget import Spend
from schemas.calls import ModelRequest
from schemas.digest import digest_model
from schemas.effects import (
    CallReceipt,
    CallRecord,
    CallStatus,
    EffectKind,
    EffectResult,
    EffectState,
    Intent,
    Opened,
    OpenedAs,
)
from schemas.errors import SurefootError
from schemas.pricing import Usage, cost_microusd
from schemas.sizing import rendered_tokens
from stores.artifacts import ArtifactStore
from stores.ledger import FRESH_SECONDS, Ledger

MAX_RAW_CHARACTERS = 5_000_000
SHORT_REPLY_BYTES = 8000  # in JSON; with everything else that is kept of a call it stays below the ledger's bound
CUT = "length"  # a reply beyond it is treated as the provider's own truncation
Built = TypeVar("Built")


@dataclass(frozen=True)
class Answered:
    """A call that ended: its receipt, and the reply where one came."""

    receipt: CallReceipt
    text: str | None = None
    """None where no reply came."""
    finish_reason: str = ""
    """The provider's reason for the end of the reply."""
    evidence: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Texts of the prompt that may be cited, by label."""


@dataclass(frozen=True)
class _Begun:
    """A request that is claimed, or one that must not be sent."""

    completion: Completion
    prompt: Prompt
    settle: Callable[[], Answered] | None
    """What answers without sending; None where the claim is new."""
    fence: int = 0
    since: float = 0.0
    """Monotonic clock, immediately before the claim was made."""


class ModelCalls:
    """Sends requests, each under its own effect."""

    def __init__(self, gateways: Gateways, ledger: Ledger, artifacts: ArtifactStore) -> None:
        """Ask through ``gateways``, account in ``ledger``, keep texts in ``artifacts``."""
        self._gateways = gateways
        self._ledger = ledger
        self._artifacts = artifacts
        self._mask = artifacts.secrets.mask

    async def ask(
        self, request: ModelRequest, schema: Mapping[str, Any] | None, build: Callable[[Answered], Built]
    ) -> Built:
        """Send ``request`` unless its effect has ended already, and return what ``build`` makes of it, in a thread.

        A cancelled activity stops the request, but never the account of it: it ends with a receipt that says
        ambiguous. Before anything was sent, cancellation takes the claim back and goes through.
        """
        stop = asyncio.Event()
        work = asyncio.ensure_future(self._ask(request, schema, build, stop))
        while True:
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                if work.done():
                    return work.result()
                stop.set()

    async def _ask(
        self,
        request: ModelRequest,
        schema: Mapping[str, Any] | None,
        build: Callable[[Answered], Built],
        stop: asyncio.Event,
    ) -> Built:
        gateway = await self._gateways.of(request.choice)  # before the claim: it may take seconds
        begun = await asyncio.to_thread(self._begin, request, schema)
        settle = begun.settle or await self._send(request, begun, gateway, stop)
        return await asyncio.to_thread(lambda: build(replace(settle(), evidence=begun.prompt.evidence)))

    def _begin(self, request: ModelRequest, schema: Mapping[str, Any] | None) -> _Begun:
        """Render and claim: the claim comes last, so that nothing lies between it and the request."""
        prompt = self._render(request)
        completion = _completion(request, prompt, schema)
        needed = rendered_tokens(prompt.system, prompt.user, schema)
        if needed > request.reservation.input_tokens:
            detail = "the prompt is larger than what was reserved"
            return _Begun(completion, prompt, partial(self._unsent, request, CallStatus.NEEDS_MORE, detail, needed))
        self._artifacts.check_room()
        intent, since = _intent(request), time.monotonic()
        opened = self._ledger.open(intent)
        settle: Callable[[], Answered] | None = None
        if opened.how is OpenedAs.SETTLED:
            settle = partial(self._recorded, request, opened)
        elif opened.how is OpenedAs.OVER_LIMIT:
            settle = partial(self._unsent, request, CallStatus.OVER_LIMIT, opened.over or "")
        elif opened.how is OpenedAs.DANGLING:
            detail = "an earlier attempt may have sent this request, and left no answer"
            settle = partial(self._close_unanswered, request, opened.fence, CallStatus.LOST, detail)
        return _Begun(completion, prompt, settle, opened.fence, since)

    async def _send(
        self, request: ModelRequest, begun: _Begun, gateway: Gateway, stop: asyncio.Event
    ) -> Callable[[], Answered]:
        """Send what was claimed, and return what settles it."""
        completion, fence = begun.completion, begun.fence
        if stop.is_set():
            await asyncio.to_thread(self._ledger.release, completion.effect_id, fence)
            raise asyncio.CancelledError
        if time.monotonic() - begun.since > FRESH_SECONDS:
            await asyncio.to_thread(self._ledger.confirm, completion.effect_id, fence)
        try:
            with chat(request, completion) as call:
                reply = await _unless_stopped(gateway, completion, stop)
                call.answered(reply)
        except AmbiguousCall as ambiguous:
            return partial(self._close_unanswered, request, fence, CallStatus.AMBIGUOUS, self._mask(str(ambiguous)))
        except SurefootError as refused:
            count_refused_call(request, refused)
            await asyncio.to_thread(self._ledger.release, completion.effect_id, fence)
            raise
        return partial(self._close, request, fence, reply)

    def _render(self, request: ModelRequest) -> Prompt:
        template = self._artifacts.get_text(request.template)
        context = [
            (item, self._mask(item.inline if item.ref is None else self._artifacts.get_text(item.ref)))
            for item in request.context
        ]
        repair = None
        if request.repair is not None:
            repair = (request.repair, self._mask(self._artifacts.get_text(request.repair.reply)))
        return render(template, context, request.key.effect_id, repair)

    def _close(self, request: ModelRequest, fence: int, reply: CompletionReply) -> Answered:
        """Record a reply. What was billed for one without usage is unknown, so its reservation stays charged."""
        text, reasoning = _storable(self._mask(reply.text)), _storable(self._mask(reply.reasoning))
        price, usage = request.choice.price, reply.usage
        charged = _reserved(request)
        if usage is not None:
            money = cost_microusd(usage, price) if price else 0
            charged = Spend(microusd=money, tokens=usage.input_tokens + usage.output_tokens, model_calls=1)
        short = json_bytes(text) <= SHORT_REPLY_BYTES
        with self._artifacts.together(patient=True) as artifacts:
            raw = None if short else artifacts.put_text(text)
            thought = artifacts.put_text(reasoning) if reasoning else None
        record = CallRecord(
            status=CallStatus.ANSWERED,
            model=clip(_storable(self._mask(reply.model)), 200),
            usage=usage or Usage(),
            usage_known=usage is not None,
            charged=charged,
            finish_reason=CUT if len(reply.text) > MAX_RAW_CHARACTERS else clip(self._mask(reply.finish_reason), 60),
            text=text if short else "",
            raw=raw,
            reasoning=thought,
        )
        state = EffectState.AMBIGUOUS if usage is None else EffectState.DONE
        return self._settled(request, fence, state, record, text)

    def _close_unanswered(self, request: ModelRequest, fence: int, status: CallStatus, detail: str) -> Answered:
        record = CallRecord(
            status=status,
            detail=clip(_storable(detail)),
            usage_known=False,
            charged=_reserved(request),
        )
        return self._settled(request, fence, EffectState.AMBIGUOUS, record, None)

    def _settled(
        self, request: ModelRequest, fence: int, state: EffectState, record: CallRecord, text: str | None
    ) -> Answered:
        result = EffectResult(state=state, charged=record.charged, outcome_json=record.model_dump_json())
        chain = self._ledger.close(request.key.effect_id, fence, result).spend
        count_call(request, record)
        return _answered(record, chain, text)

    def _unsent(self, request: ModelRequest, status: CallStatus, detail: str, needed: int = 0) -> Answered:
        chain = self._ledger.totals(request.key.first_run_id).spend
        count_call(request, CallRecord(status=status, detail=detail))
        return Answered(CallReceipt(status=status, detail=detail, chain=chain, needed_input_tokens=needed))

    def _recorded(self, request: ModelRequest, opened: Opened) -> Answered:
        """Return what an earlier attempt recorded: the same reply, read again."""
        record = CallRecord.model_validate_json(opened.result.outcome_json if opened.result else "")
        chain = self._ledger.totals(request.key.first_run_id).spend
        if record.status is not CallStatus.ANSWERED:
            return _answered(record, chain, None)
        return _answered(record, chain, self._artifacts.get_text(record.raw) if record.raw else record.text)


async def _unless_stopped(gateway: Gateway, completion: Completion, stop: asyncio.Event) -> CompletionReply:
    """Return the reply; where the activity is cancelled first, stop waiting: the request is ambiguous then."""
    sending = asyncio.ensure_future(gateway.complete(completion))
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({sending, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not sending.done():
        sending.cancel()
        await asyncio.wait({sending})
    if sending.cancelled():
        raise AmbiguousCall("cancelled while the request was under way")
    return sending.result()


def _answered(record: CallRecord, chain: Spend, text: str | None) -> Answered:
    receipt = CallReceipt(status=record.status, detail=record.detail, charged=record.charged, chain=chain)
    return Answered(receipt, text, record.finish_reason)


def _intent(request: ModelRequest) -> Intent:
    return Intent(
        key=request.key,
        kind=EffectKind.MODEL,
        name=request.node.value,
        digest=digest_model(request, exclude={"reservation", "limits"}),
        reservation=request.reservation,
        limits=request.limits,
    )


def _completion(request: ModelRequest, prompt: Prompt, schema: Mapping[str, Any] | None) -> Completion:
    return Completion(
        effect_id=request.key.effect_id,
        node=request.node,
        system=prompt.system,
        user=prompt.user,
        choice=request.choice,
        schema=schema,
        max_output_tokens=min(request.choice.max_output_tokens, request.reservation.output_tokens),
        timeout_seconds=request.choice.timeout_seconds,
    )


def _reserved(request: ModelRequest) -> Spend:
    reservation = request.reservation
    return Spend(microusd=reservation.microusd, tokens=reservation.tokens, model_calls=1)


def _storable(text: str) -> str:
    """Return ``text`` bounded and in UTF-8: a reply may hold lone surrogates, which nothing could store."""
    return text[:MAX_RAW_CHARACTERS].encode("utf-8", "replace").decode()
