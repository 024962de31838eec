"""What the workflow makes of calls that go wrong, on a real server with scripted activities."""

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from schemas.actions import ObservationStatus
from schemas.budget import Limits, Spend
from schemas.checks import Before
from schemas.effects import CallStatus
from schemas.errors import ModelAuth, ModelRateLimited
from schemas.models import Node
from schemas.outcome import OutcomeKind, StopReason
from schemas.state import AgentState, TaskResult
from schemas.task import Bounds, TaskSpec
from tests.support.events import recorded_events
from tests.support.running import Running, on_server
from tests.support.scripted import COST, World, action, requirement, spec
from tests.support.server import DevServer


def run(server: DevServer, world: World, **changes: object) -> TaskResult:
    """Run a task in ``world`` to its end."""

    async def test(running: Running) -> TaskResult:
        return await running.run(spec(running.queue, **changes))

    return on_server(server.settings, world, test)


def failure(server: DevServer, world: World, **changes: object) -> ApplicationError:
    """Run a task that FAILS, and return its failure."""
    with pytest.raises(WorkflowFailureError) as found:
        run(server, world, **changes)
    assert isinstance(found.value.cause, ApplicationError)
    assert len(world.recorded) == 1  # a failed run is recorded and closed like any other
    assert world.recorded[0].outcome.error_type == found.value.cause.type
    return found.value.cause


def test_an_ambiguous_call_is_charged_its_reservation_and_asked_again_under_a_new_effect(server: DevServer) -> None:
    def once(world: World, request: object) -> CallStatus:
        return CallStatus.AMBIGUOUS if len(world.asked) == 1 else CallStatus.ANSWERED

    world = World(status=once)
    result = run(server, world)
    assert result.outcome.kind is OutcomeKind.FINISHED
    first, second = world.asked[:2]
    assert first.node is second.node is Node.PLAN
    assert first.key.effect_id != second.key.effect_id
    reserved = first.reservation
    expected = Spend(microusd=reserved.microusd + 300, tokens=reserved.tokens + 90, model_calls=4, tool_calls=1)
    assert result.summary.spend == expected


@pytest.mark.parametrize(("status", "requests"), [(CallStatus.AMBIGUOUS, 3), (CallStatus.LOST, 10)])
def test_calls_without_an_answer_end_in_a_typed_failure(server: DevServer, status: CallStatus, requests: int) -> None:
    world = World(status=lambda world, request: status)
    assert failure(server, world).type == "ModelUnanswered"
    assert len(world.asked) == requests


def test_workers_that_die_again_and_again_in_one_request_do_not_end_a_healthy_task(server: DevServer) -> None:
    def first_nine(world: World, request: object) -> CallStatus:
        return CallStatus.LOST if len(world.asked) < 10 else CallStatus.ANSWERED

    world = World(status=first_nine)
    result = run(server, world)
    assert result.outcome.kind is OutcomeKind.FINISHED
    assert [request.node for request in world.asked[:10]] == [Node.PLAN] * 10
    lost = sum(request.reservation.microusd for request in world.asked[:9])
    assert result.summary.spend.microusd == lost + 3 * COST.microusd


def test_a_reservation_that_was_too_small_is_enlarged_and_a_second_time_refused(server: DevServer) -> None:
    world = World(status=lambda world, request: CallStatus.NEEDS_MORE)
    assert failure(server, world).type == "ContextExceeded"
    asked = [request.reservation.input_tokens for request in world.asked]
    assert asked == [asked[0], asked[0] + 500, asked[0] + 1000]


def test_a_limit_that_the_ledger_sees_passed_stops_the_run(server: DevServer) -> None:
    world = World(status=lambda world, request: CallStatus.OVER_LIMIT)
    result = run(server, world, limits=Limits(tokens=10_000))
    assert result.outcome.reason is StopReason.BUDGET_TOKENS
    assert result.summary.spend == Spend()


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(model_calls=1), StopReason.BUDGET_MODEL_CALLS),
        (Limits(tool_calls=1), StopReason.BUDGET_TOOL_CALLS),
        (Limits(microusd=1), StopReason.BUDGET_USD),
        (Limits(tokens=500), StopReason.BUDGET_TOKENS),
    ],
    ids=["model calls", "tool calls", "money", "tokens"],
)
def test_a_hard_limit_is_never_passed(server: DevServer, limits: Limits, reason: StopReason) -> None:
    world = World(met=lambda world: False, actions=lambda request: (action(), action()))
    result = run(server, world, limits=limits)
    assert result.outcome.reason is reason
    for name in Spend.model_fields:
        limit = getattr(limits, name)
        assert limit is None or getattr(result.summary.spend, name) <= limit


def test_a_run_whose_last_call_uses_up_the_budget_still_finishes_by_its_checks(server: DevServer) -> None:
    world = World()
    result = run(server, world, limits=Limits(model_calls=3, tool_calls=1))
    assert result.outcome.kind is OutcomeKind.FINISHED
    assert result.summary.spend.model_calls == 3


def test_an_unusable_plan_gets_one_repair_and_then_uses_up_a_version(server: DevServer) -> None:
    world = World(usable=lambda request: False)
    result = run(server, world, bounds=Bounds(max_plan_versions=2))
    assert result.outcome.reason is StopReason.MAX_PLAN_VERSIONS
    assert [request.repair is not None for request in world.asked] == [False, True, False, True]
    assert world.asked[1].repair is not None
    assert world.asked[1].repair.problem == "scripted: not JSON"
    assert AgentState.model_validate_json(world.recorded[0].state_json).counters.unusable_replies == 4


def test_no_usable_verdict_means_not_done(server: DevServer) -> None:
    world = World(met=lambda world: False, verdict=lambda request: None)
    result = run(server, world, bounds=Bounds(max_plan_versions=1))
    assert result.outcome.reason is StopReason.MAX_PLAN_VERSIONS
    assert result.summary.steps_done == 0


def test_a_final_error_fails_the_run_with_its_type_and_costs_nothing(server: DevServer) -> None:
    world = World(error=ModelAuth("the key was refused"))
    assert failure(server, world).type == "ModelAuth"
    assert len(world.asked) == 1
    assert world.recorded[0].spend == Spend()


def test_a_rate_limit_is_tried_again_within_its_attempts_under_the_same_effect(server: DevServer) -> None:
    world = World(error=ModelRateLimited("m", retry_after_seconds=0.05))
    assert failure(server, world).type == "ModelRateLimited"
    assert len(world.asked) == 6
    assert len({request.key.effect_id for request in world.asked}) == 1


def test_a_lost_attempt_at_an_action_is_reconciled_and_never_repeated_blindly(server: DevServer) -> None:
    world = World(lose_attempts=1)
    result = run(server, world)
    assert result.outcome.kind is OutcomeKind.FINISHED
    assert [request.key for request in world.reconciled] == [world.performed[0].key]
    assert len(world.performed) == 1
    state = AgentState.model_validate_json(world.recorded[0].state_json)
    assert state.counters.unknown_effects == 1
    assert state.observations[0].status is ObservationStatus.UNKNOWN


def test_an_action_proven_not_to_have_happened_is_decided_anew_under_a_new_effect(server: DevServer) -> None:
    world = World(lose_attempts=1, reconciles_as=ObservationStatus.VOID, met=lambda world: len(world.performed) > 1)
    assert run(server, world).outcome.kind is OutcomeKind.FINISHED
    first, second = world.performed
    assert first.key != second.key
    assert first.action_id == second.action_id


def test_an_action_that_is_refused_is_an_observation_and_never_performed(server: DevServer) -> None:
    wrong = (
        action("a", invalid="timeout_seconds: not a number"),
        action("b", irreversible=True),
    )
    world = World(
        met=lambda world: False,
        verdict=lambda request: False,
        actions=lambda request: wrong[len(world.nodes()) % 2 :][:1],
    )
    result = run(server, world, bounds=Bounds(max_plan_versions=1))
    assert result.outcome.kind is OutcomeKind.STOPPED_INCOMPLETE
    assert world.performed == []
    state = AgentState.model_validate_json(world.recorded[0].state_json)
    assert {item.status for item in state.observations} == {ObservationStatus.INVALID, ObservationStatus.REFUSED}
    assert "timeout_seconds: not a number" in {item.summary for item in state.observations}


def test_a_check_that_must_fail_before_any_work_but_holds_fails_the_run(server: DevServer) -> None:
    world = World(met=lambda world: True)
    error = failure(server, world, requirements=(requirement(before=Before.MUST_FAIL),))
    assert error.type == "RequirementAlreadyMet"
    assert world.asked == []


def test_a_requirement_that_holds_from_the_start_finishes_without_a_model(server: DevServer) -> None:
    world = World(met=lambda world: True)
    assert run(server, world).outcome.kind is OutcomeKind.FINISHED
    assert world.asked == []


def test_the_spend_of_a_chain_is_read_from_the_ledger_at_the_start(server: DevServer) -> None:
    world = World(chain=Spend(microusd=7000, model_calls=5))
    result = run(server, world, limits=Limits(microusd=7000))
    assert result.outcome.reason is StopReason.BUDGET_USD
    assert world.asked == []


def test_the_evaluator_is_never_shown_to_a_model_and_changes_no_outcome(server: DevServer) -> None:
    def spec_with_evaluator(queue: str) -> TaskSpec:
        task = spec(queue)
        check = task.requirements[0].check.model_copy(update={"path": "hidden-file.txt"})
        return spec(queue, evaluator=(check,))

    world = World(met=lambda world: len(world.performed) == 1)

    async def test(running: Running) -> TaskResult:
        return await running.run(spec_with_evaluator(running.queue))

    result = on_server(server.settings, world, test)
    assert result.outcome.verified is True
    assert all("hidden" not in request.model_dump_json() for request in world.asked)
    assert result.summary.spend == Spend(microusd=3 * COST.microusd, tokens=90, model_calls=3, tool_calls=1)


def test_of_a_task_that_stopped_nobody_says_that_its_evaluator_says_no(server: DevServer) -> None:
    world = World(met=lambda _: False)

    async def test(running: Running) -> TaskResult:
        task = spec(running.queue)
        bounds = Bounds(max_plan_versions=1, max_plan_step_iterations=1)
        return await running.run(spec(running.queue, evaluator=(task.requirements[0].check,), bounds=bounds))

    result = on_server(server.settings, world, test)
    assert result.outcome.verified is False
    ended = recorded_events(world)[-1]
    assert ended.text.startswith("STOPPED_INCOMPLETE(max_plan_versions): ")
