"""A model call is an effect: one request under one id, its bill in the ledger, whatever happens on the way."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.model.calls import MAX_RAW_CHARACTERS
from activities.model.litellm_gateway import LiteLlmGateway
from activities.model.port import Deferred, Gateway, Gateways
from activities.model.rehearsed import RehearsedGateway
from activities.nodes import ModelNodes
from schemas.base import rebuild
from schemas.budget import Limits, Spend
from schemas.calls import ProblemKind, RepairRequest, VerdictReply
from schemas.digest import digest_model
from schemas.effects import CallStatus, EffectKind, EffectState, Intent, Opened, OpenedAs
from schemas.models import Node
from schemas.pricing import cost_microusd
from stores.ledger import FRESH_SECONDS, Ledger
from tests.activities.model_bench import CHAIN, PRICE, ModelBench
from tests.support.aio import run, run_activity
from tests.support.model_bill import billed_microusd, billed_usage
from tests.support.model_stub import Behaviour, ModelStub, queued

YES = json.dumps({"reason": "seen", "citation": {"source": "o17", "quote": "2 passed in"}, "result": True})
SEEN = {"observations": "$ pytest\n2  passed\n in 0.01s"}


@pytest.fixture(scope="module")
def gateway() -> LiteLlmGateway:
    return LiteLlmGateway({})


@pytest.fixture
def bench(tmp_path: Path, gateway: LiteLlmGateway) -> ModelBench:
    return ModelBench(tmp_path, gateway)


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[ModelStub]:
    with ModelStub(tmp_path / "bill.jsonl") as running:
        yield running


def judge(bench: ModelBench, stub: ModelStub, seq: int = 1, **changes: Any) -> VerdictReply:
    request = bench.request(Node.VALIDATE_PLAN_STEP, bench.choice(stub.url), seq, SEEN)
    return run_activity(bench.nodes.validate_plan_step, rebuild(request, **changes))


def test_a_call_is_billed_exactly_and_its_receipt_says_so(bench: ModelBench, stub: ModelStub) -> None:
    stub.script = lambda asked: Behaviour(content=YES, reasoning="I looked")
    reply = judge(bench, stub)
    usage = billed_usage(stub.bill()[0])
    cost = Spend(microusd=cost_microusd(usage, PRICE), tokens=usage.input_tokens + usage.output_tokens, model_calls=1)
    receipt, record = reply.receipt, bench.record()
    assert receipt.status is CallStatus.ANSWERED
    assert (receipt.charged, receipt.chain, receipt.raw) == (cost, cost, None)
    assert (record.status, record.usage, record.charged) == (CallStatus.ANSWERED, usage, cost)
    assert bench.ledger.totals(CHAIN).spend == cost
    assert (record.text, record.raw) == (YES, None)
    assert record.reasoning is not None
    assert bench.artifacts.get_text(record.reasoning) == "I looked"
    assert reply.verdict is not None
    assert reply.verdict.result


def test_a_second_attempt_returns_the_recorded_reply_without_asking(bench: ModelBench, stub: ModelStub) -> None:
    stub.script = lambda asked: Behaviour(content=YES)
    first = judge(bench, stub)
    assert judge(bench, stub) == first
    assert len(stub.bill()) == 1


def test_the_same_id_with_another_request_is_an_error_and_a_larger_reservation_is_not(
    bench: ModelBench, stub: ModelStub
) -> None:
    judge(bench, stub)
    with pytest.raises(ApplicationError) as raised:
        judge(bench, stub, place="v1.s2.i1")
    assert raised.value.type == "EffectMismatch"
    assert raised.value.non_retryable
    judge(bench, stub, limits=Limits(model_calls=50))
    assert len(stub.bill()) == 1


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(kind="server_error"),
        Behaviour(kind="server_error", charge=False),
        Behaviour(kind="reset"),
        Behaviour(kind="malformed"),
        Behaviour(kind="stall"),
    ],
)
def test_what_may_have_been_billed_ends_ambiguous_with_its_whole_reservation(
    bench: ModelBench, stub: ModelStub, behaviour: Behaviour
) -> None:
    stub.script = lambda asked: behaviour
    request = bench.request(Node.VALIDATE_PLAN_STEP, bench.choice(stub.url, timeout_seconds=1), 1, SEEN)
    reply = run_activity(bench.nodes.validate_plan_step, request)
    reserved = request.reservation
    assert reply.receipt.status is CallStatus.AMBIGUOUS
    assert reply.receipt.detail
    assert reply.verdict is None
    assert reply.problem is None
    assert reply.receipt.charged == Spend(microusd=reserved.microusd, tokens=reserved.tokens, model_calls=1)
    assert [row.state for row in bench.ledger.rows(CHAIN)] == [EffectState.AMBIGUOUS]
    assert run_activity(bench.nodes.validate_plan_step, request) == reply
    assert len(stub.bill()) == 1


@pytest.mark.parametrize(
    ("behaviour", "error", "final"),
    [
        (Behaviour(kind="rate_limited", retry_after="7"), "ModelRateLimited", False),
        (Behaviour(kind="unauthorized"), "ModelAuth", True),
        (Behaviour(kind="context"), "ContextExceeded", True),
    ],
)
def test_what_was_not_billed_gives_its_reservation_back_and_may_be_sent_again(
    bench: ModelBench, stub: ModelStub, behaviour: Behaviour, error: str, final: bool
) -> None:
    stub.script = lambda asked: behaviour
    with pytest.raises(ApplicationError) as raised:
        judge(bench, stub)
    assert (raised.value.type, raised.value.non_retryable) == (error, final)
    totals = bench.ledger.totals(CHAIN)
    assert (totals.spend, totals.open) == (Spend(), Spend())
    stub.script = lambda asked: Behaviour(content=YES)
    assert judge(bench, stub).verdict is not None


def test_a_worker_without_an_adapter_leaves_the_call_to_another_one(bench: ModelBench, stub: ModelStub) -> None:
    rehearsed = RehearsedGateway(bench.artifacts, bench.logs / "rehearsed-model.jsonl")
    bare = ModelNodes(Gateways(rehearsed=rehearsed, models=None), bench.ledger, bench.artifacts)
    request = bench.request(Node.VALIDATE_PLAN_STEP, bench.choice(stub.url), 1, SEEN)
    with pytest.raises(ApplicationError, match="make setup") as raised:
        run_activity(bare.validate_plan_step, request)
    assert (raised.value.type, raised.value.non_retryable) == ("ModelUnreachable", False)
    stub.script = lambda asked: Behaviour(content=YES)
    assert run_activity(bench.nodes.validate_plan_step, request).verdict is not None


def deferring(bench: ModelBench, make: Callable[[], Gateway]) -> ModelNodes:
    """Return the activities of a worker whose adapter is made at its first request."""
    rehearsed = RehearsedGateway(bench.artifacts, bench.logs / "rehearsed-model.jsonl")
    return ModelNodes(Gateways(rehearsed=rehearsed, models=Deferred(make)), bench.ledger, bench.artifacts)


def test_an_adapter_is_made_once_before_any_claim_and_heartbeats_go_on_meanwhile(
    bench: ModelBench, stub: ModelStub, gateway: LiteLlmGateway
) -> None:
    stub.script = lambda asked: Behaviour(content=YES)
    beaten, made = threading.Event(), []

    def make() -> Gateway:
        made.append((beaten.wait(30), bench.ledger.rows(CHAIN)))
        return gateway

    nodes = deferring(bench, make)

    async def one(seq: int) -> VerdictReply:
        environment = ActivityEnvironment()
        environment.on_heartbeat = lambda *_details: beaten.set()
        request = bench.request(Node.VALIDATE_PLAN_STEP, bench.choice(stub.url), seq, SEEN)
        return await environment.run(nodes.validate_plan_step, request)

    async def both() -> list[VerdictReply]:
        return list(await asyncio.gather(one(1), one(2)))

    assert [reply.receipt.status for reply in run(both())] == [CallStatus.ANSWERED] * 2
    assert made == [(True, [])]


def test_an_adapter_that_does_not_load_leaves_the_call_to_another_worker_and_is_tried_again(
    bench: ModelBench, stub: ModelStub, gateway: LiteLlmGateway
) -> None:
    stub.script = lambda asked: Behaviour(content=YES)
    parts: list[Gateway] = []

    def make() -> Gateway:
        if not parts:
            raise ImportError("half an installation")
        return parts[0]

    nodes = deferring(bench, make)
    request = bench.request(Node.VALIDATE_PLAN_STEP, bench.choice(stub.url), 1, SEEN)
    with pytest.raises(ApplicationError, match=r"half an installation.*make setup") as raised:
        run_activity(nodes.validate_plan_step, request)
    assert (raised.value.type, raised.value.non_retryable) == ("ModelUnreachable", False)
    assert bench.ledger.rows(CHAIN) == []
    parts.append(gateway)
    assert run_activity(nodes.validate_plan_step, request).receipt.status is CallStatus.ANSWERED


def test_an_intent_left_by_a_dead_attempt_is_charged_and_never_sent_again(bench: ModelBench, stub: ModelStub) -> None:
    request = bench.request(Node.VALIDATE_PLAN_STEP, bench.choice(stub.url), 1, SEEN)
    intent = Intent(
        key=request.key,
        kind=EffectKind.MODEL,
        name=request.node.value,
        digest=digest_model(request, exclude={"reservation", "limits"}),
        reservation=request.reservation,
        limits=request.limits,
    )
    assert bench.ledger.open(intent).how is OpenedAs.NEW
    reply = run_activity(bench.nodes.validate_plan_step, request)
    assert reply.receipt.status is CallStatus.LOST
    assert [row.state for row in bench.ledger.rows(CHAIN)] == [EffectState.AMBIGUOUS]
    assert reply.receipt.charged.microusd == request.reservation.microusd
    assert stub.bill() == []


class OvertakenLedger(Ledger):
    """A ledger whose answer to a claim comes so late that another attempt has taken the effect over meanwhile."""

    def open(self, intent: Intent) -> Opened:
        opened = super().open(intent)
        super().open(intent)
        time.sleep(2 * FRESH_SECONDS)
        return opened


def test_an_attempt_that_was_held_up_after_its_claim_makes_sure_of_it_before_it_sends(
    bench: ModelBench, stub: ModelStub, gateway: LiteLlmGateway, tmp_path: Path
) -> None:
    gateways = Gateways(rehearsed=RehearsedGateway(bench.artifacts, bench.logs / "model.jsonl"), models=gateway)
    nodes = ModelNodes(gateways, OvertakenLedger(f"sqlite:///{tmp_path}/surefoot.db"), bench.artifacts)
    request = bench.request(Node.VALIDATE_PLAN_STEP, bench.choice(stub.url), 1, SEEN)
    with pytest.raises(ApplicationError, match="is lost"):
        run_activity(nodes.validate_plan_step, request)
    assert not stub.bill()


def test_a_prompt_beyond_its_reservation_is_not_sent_and_says_what_it_needs(bench: ModelBench, stub: ModelStub) -> None:
    request = bench.request(Node.VALIDATE_PLAN_STEP, bench.choice(stub.url), 1, SEEN)
    small = rebuild(request, reservation=rebuild(request.reservation, input_tokens=100))
    receipt = run_activity(bench.nodes.validate_plan_step, small).receipt
    assert receipt.status is CallStatus.NEEDS_MORE
    assert 100 < receipt.needed_input_tokens <= request.reservation.input_tokens
    assert stub.bill() == []
    assert bench.ledger.rows(CHAIN) == []
    enough = rebuild(small, reservation=rebuild(small.reservation, input_tokens=receipt.needed_input_tokens))
    assert run_activity(bench.nodes.validate_plan_step, enough).receipt.status is CallStatus.ANSWERED


def test_a_limit_in_the_ledger_keeps_a_call_from_being_sent(bench: ModelBench, stub: ModelStub) -> None:
    judge(bench, stub, seq=1)
    request = bench.request(Node.VALIDATE_PLAN_STEP, bench.choice(stub.url), 2, SEEN, limits=Limits(model_calls=1))
    receipt = run_activity(bench.nodes.validate_plan_step, request).receipt
    assert (receipt.status, receipt.detail) == (CallStatus.OVER_LIMIT, "model_calls")
    assert receipt.charged == Spend()
    assert receipt.chain.model_calls == 1
    assert len(stub.bill()) == 1


def test_a_reply_without_usage_is_used_and_charged_its_reservation(bench: ModelBench, stub: ModelStub) -> None:
    stub.script = lambda asked: Behaviour(content=YES, usage=None)
    reply = judge(bench, stub)
    assert reply.verdict is not None
    assert reply.verdict.result
    assert not bench.record().usage_known
    (row,) = bench.ledger.rows(CHAIN)
    assert reply.receipt.charged.microusd == row.reserved.microusd
    assert row.state is EffectState.AMBIGUOUS  # nobody knows what was billed for it


def test_cancelled_in_the_middle_of_a_request_it_is_accounted_for(bench: ModelBench, stub: ModelStub) -> None:
    stub.script = lambda asked: Behaviour(kind="stall")

    async def cancelled() -> VerdictReply:
        environment = ActivityEnvironment()
        request = bench.request(Node.VALIDATE_PLAN_STEP, bench.choice(stub.url), 1, SEEN)
        running = asyncio.ensure_future(environment.run(bench.nodes.validate_plan_step, request))
        await asyncio.to_thread(stub.wait_for, 1)
        environment.cancel()
        return await running

    reply = run(cancelled())
    assert reply.receipt.status is CallStatus.AMBIGUOUS
    assert "cancelled" in reply.receipt.detail
    (row,) = bench.ledger.rows(CHAIN)
    assert row.state is EffectState.AMBIGUOUS
    assert reply.receipt.chain == row.charged


def test_cancelled_before_anything_was_sent_it_takes_its_claim_back(bench: ModelBench, stub: ModelStub) -> None:
    async def cancelled() -> None:
        request = bench.request(Node.VALIDATE_PLAN_STEP, bench.choice(stub.url), 1, SEEN)
        running = asyncio.ensure_future(ActivityEnvironment().run(bench.nodes.validate_plan_step, request))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    run(cancelled())
    assert stub.bill() == []
    assert bench.ledger.totals(CHAIN).open == Spend()


def test_a_huge_reply_is_an_artifact_and_counts_as_truncated(bench: ModelBench, stub: ModelStub) -> None:
    stub.script = lambda asked: Behaviour(content='{"reason": "' + "x" * 1000, content_repeat=6000)
    reply = judge(bench, stub)
    assert reply.problem is not None
    assert reply.problem.kind is ProblemKind.TRUNCATED
    assert reply.receipt.raw is not None
    assert reply.receipt.raw.size_bytes == MAX_RAW_CHARACTERS
    assert len(reply.model_dump_json()) < 5000
    assert judge(bench, stub) == reply


def test_lone_surrogates_in_a_reply_break_nothing(bench: ModelBench, stub: ModelStub) -> None:
    stub.script = lambda asked: Behaviour(content=YES + "\ud800", reasoning="\udfff")
    reply = judge(bench, stub)
    assert reply.verdict is not None
    assert judge(bench, stub) == reply


def test_a_repair_is_a_new_request_that_shows_the_reply_and_its_fault(bench: ModelBench, stub: ModelStub) -> None:
    replies = iter(["I think it is done.", YES])
    stub.script = lambda asked: Behaviour(content=next(replies))
    first = judge(bench, stub, seq=1)
    assert first.problem is not None
    assert first.receipt.raw is not None
    repair = RepairRequest(reply=first.receipt.raw, problem=first.problem.detail)
    request = bench.request(Node.VALIDATE_PLAN_STEP, bench.choice(stub.url), 2, SEEN, repair=repair)
    second = run_activity(bench.nodes.validate_plan_step, request)
    assert second.verdict is not None
    assert second.verdict.result
    before, after = (entry["body"]["messages"][1]["content"] for entry in stub.bill())
    assert "I think it is done." in after
    assert first.problem.detail in after
    assert "I think it is done." not in before


def test_the_difference_between_spend_and_bill_is_what_ambiguous_calls_reserved(
    bench: ModelBench, stub: ModelStub
) -> None:
    behaviours = [
        Behaviour(content=YES),
        Behaviour(kind="server_error"),
        Behaviour(kind="server_error", charge=False),
        Behaviour(kind="rate_limited"),
        Behaviour(content=YES, usage={"prompt_tokens": 1234, "prompt_tokens_details": {"cached_tokens": 1000}}),
        Behaviour(kind="reset"),
        Behaviour(content="no json"),
        Behaviour(content=YES, usage=None),
        Behaviour(kind="empty_choices"),
    ]
    for seq, behaviour in enumerate(behaviours, start=1):
        stub.script = queued([behaviour])
        if behaviour.kind == "rate_limited":
            with pytest.raises(ApplicationError):
                judge(bench, stub, seq)
        else:
            judge(bench, stub, seq)
    bill = {entry["key"]: entry for entry in stub.bill()}
    rows = bench.ledger.rows(CHAIN)
    gap = sum(
        row.reserved.microusd - billed_microusd([bill[row.effect_id]], PRICE)
        for row in rows
        if row.state is EffectState.AMBIGUOUS
    )
    assert len(stub.bill()) == len(bill) == len(behaviours)
    assert bench.ledger.totals(CHAIN).spend.microusd - billed_microusd(stub.bill(), PRICE) == gap > 0
