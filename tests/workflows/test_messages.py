"""Messages to a running task, on a real server with scripted activities."""

import asyncio
import json

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowFailureError
from temporalio.common import RawValue
from temporalio.exceptions import CancelledError

from schemas.outcome import OutcomeKind, Status
from schemas.state import AgentState, EventKind
from schemas.task import Bounds, Caps
from stores.artifacts import ArtifactStore
from tests.support.running import Handle, Running, on_server, signal, until
from tests.support.scripted import World, spec
from tests.support.server import DevServer


def long_command() -> World:
    """Return a world whose commands take a minute, and never meet the requirement."""
    return World(seconds=60, met=lambda world: False)


def numbers(state: AgentState, world: World) -> list[int]:
    """Return the numbers of all numbered messages in the order of the record, archived ones first."""
    archived = [json.loads(line) for chunk in world.chunks for line in chunk.records_jsonl.splitlines()]
    texts = [item["text"] for item in archived if item["kind"] == EventKind.MESSAGE]
    texts += [event.text for event in state.events if event.kind is EventKind.MESSAGE]
    return [int(text.split(": n")[1].split(" ")[0]) for text in texts if ": n" in text]


def test_cancel_stops_a_long_command_and_returns_the_typed_outcome(server: DevServer) -> None:
    world = long_command()

    async def test(running: Running) -> None:
        handle = await running.start()
        await until(handle, lambda state: len(world.performed) == 1)
        await signal(handle, "cancel", by="ann", text="enough")
        result = await handle.result()
        assert result.outcome.kind is OutcomeKind.CANCELLED
        assert result.outcome.detail == "Cancelled by ann: enough"
        assert world.interrupted == 1
        assert world.closed == 1

    on_server(server.settings, world, test)


def test_pause_stops_a_long_command_and_resume_carries_on(server: DevServer) -> None:
    world = long_command()

    async def test(running: Running) -> None:
        handle = await running.start()
        await until(handle, lambda state: len(world.performed) == 1)
        await signal(handle, "pause", by="ann", text="lunch")
        paused = await until(handle, lambda state: state.status is Status.PAUSED)
        assert paused.paused_by == "ann: lunch"
        assert world.interrupted == 1
        asked = len(world.asked)
        await asyncio.sleep(0.5)
        assert len(world.asked) == asked  # nothing is asked while paused
        world.seconds, world.met = 0, lambda world: True
        await signal(handle, "resume")
        assert (await handle.result()).outcome.kind is OutcomeKind.FINISHED

    on_server(server.settings, world, test)


def test_cancel_while_paused_ends_the_run(server: DevServer) -> None:
    async def test(running: Running) -> None:
        handle = await running.start()
        await signal(handle, "pause")
        await until(handle, lambda state: state.status is Status.PAUSED)
        await signal(handle, "cancel")
        assert (await handle.result()).outcome.kind is OutcomeKind.CANCELLED

    on_server(server.settings, long_command(), test)


def test_temporals_own_cancel_cleans_up_publishes_the_outcome_and_ends_cancelled(server: DevServer) -> None:
    world = long_command()

    async def test(running: Running) -> None:
        handle = await running.start()
        await until(handle, lambda state: len(world.performed) == 1)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as failure:
            await handle.result()
        assert isinstance(failure.value.cause, CancelledError)
        assert world.interrupted == 1
        assert world.closed == 1
        assert world.recorded[0].outcome.kind is OutcomeKind.CANCELLED
        description = await handle.describe()
        assert description.typed_search_attributes.search_attributes
        status = {item.key.name: item.value for item in description.typed_search_attributes}
        assert status["SurefootStatus"] == "CANCELLED"

    on_server(server.settings, world, test)


def test_temporals_cancel_while_closing_changes_nothing(server: DevServer) -> None:
    world = World(closing_seconds=1.0)

    async def test(running: Running) -> None:
        handle = await running.start()
        await until(handle, lambda state: state.status is Status.CLOSING)
        await handle.cancel()
        assert (await handle.result()).outcome.kind is OutcomeKind.FINISHED
        assert world.closed == 1
        assert len(world.recorded) == 1

    on_server(server.settings, world, test)


def test_steering_reaches_the_next_proposal(server: DevServer) -> None:
    world = long_command()

    async def test(running: Running) -> None:
        handle = await running.start()
        await until(handle, lambda state: len(world.performed) == 1)
        await signal(handle, "pause")
        await until(handle, lambda state: state.status is Status.PAUSED)
        await signal(handle, "steer", by="ann", text="use the blue one")
        await signal(handle, "resume")
        await until(handle, lambda state: len(world.performed) == 2)
        steering = [text.inline for text in world.asked[-1].context if text.slot == "steering"]
        assert steering == ["- ann: use the blue one"]
        await signal(handle, "cancel")
        await handle.result()

    on_server(server.settings, world, test)


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("pause", [{"text": 5}], "refused: text: Input should be a valid string"),
        ("pause", [{"colour": "blue"}], "refused: colour: Extra inputs are not permitted"),
        ("cancel", ["just", "words"], "refused: one argument expected, got 2"),
        ("cancel", ["words"], "refused: value: "),
        ("cancel", [b"\xff\x00"], "refused: one JSON object expected"),
        ("cancel", [None], "refused: one JSON object expected"),
        ("explode", [], "refused: unknown signal"),
        ("resume", [], "refused: not paused"),
        ("steer", [{"text": " "}], "refused: the message is empty"),
    ],
)
def test_a_malformed_signal_is_a_recorded_refusal_and_wedges_nothing(
    server: DevServer, name: str, args: list[object], expected: str
) -> None:
    async def test(running: Running) -> None:
        handle = await running.start()
        await handle.signal(name, args=args)
        state = await until(handle, lambda state: state.messages.received == 1)
        assert state.messages.refused == 1
        assert expected in next(event.text for event in state.events if event.kind is EventKind.MESSAGE)
        await signal(handle, "cancel")  # still gets through
        assert (await handle.result()).outcome.kind is OutcomeKind.CANCELLED

    on_server(server.settings, long_command(), test)


def reference(body: bytes, encoding: bytes = b"json/external-storage-reference", message: bytes = b"") -> RawValue:
    """Return a payload that the SDK takes for a reference to external storage."""
    return RawValue(Payload(metadata={"encoding": encoding, "messageType": message}, data=body))


def legacy(driver: str, claim: object) -> bytes:
    """Return the body of a reference as the SDK wrote it first."""
    return json.dumps({"driver_name": driver, "driver_claim": {"claim_data": claim}}).encode()


PROTO = b"json/protobuf"
NAME = b"temporal.api.sdk.v1.ExternalStorageReference"
FORGED = {"sha256": "0" * 64, "size_bytes": "5", "signature": "0" * 64}


@pytest.mark.parametrize(
    "forged",
    [
        reference(legacy("surefoot.artifacts", FORGED)),
        reference(legacy("surefoot.artifacts", {})),
        reference(legacy("surefoot.artifacts", {**FORGED, "sha256": "../../etc/passwd"})),
        reference(legacy("surefoot.artifacts", {**FORGED, "signature": "ü"})),
        reference(legacy("surefoot.artifacts", None)),
        reference(legacy("of-somebody-else", {})),
        reference(b"not json"),
        reference(b"{}"),
        reference(b"[1, 2]"),
        reference(json.dumps({"driverName": "surefoot.artifacts", "claimData": FORGED}).encode(), PROTO, NAME),
        reference(json.dumps({"driverName": "of-somebody-else"}).encode(), PROTO, NAME),
        reference(b"not json", PROTO, NAME),
        reference(b'{"unknown": 1}', PROTO, NAME),
        RawValue(
            Payload(metadata={"encoding": b"json/plain", "__temporal_external_storage_reference": b"true"}, data=b"{}")
        ),
    ],
)
def test_a_forged_reference_to_external_storage_is_refused_like_any_malformed_signal(
    server: DevServer, forged: RawValue
) -> None:
    ArtifactStore(server.settings.artifacts_dir).put_bytes(b"a store that is there")

    async def test(running: Running) -> None:
        handle = await running.start()
        await handle.signal("steer", args=[forged])
        await handle.signal("steer", args=[forged, forged])
        state = await until(handle, lambda state: state.messages.received == 2)
        assert state.messages.refused == 2
        await signal(handle, "cancel")
        assert (await handle.result()).outcome.kind is OutcomeKind.CANCELLED

    on_server(server.settings, long_command(), test)


def test_the_same_message_twice_is_received_once(server: DevServer) -> None:
    async def test(running: Running) -> None:
        handle = await running.start()
        await signal(handle, "pause", id="x")
        await signal(handle, "resume")
        await signal(handle, "pause", id="x")
        state = await until(handle, lambda state: state.messages.received == 3)
        assert state.paused_by is None
        await signal(handle, "cancel")
        await handle.result()

    on_server(server.settings, long_command(), test)


def test_hundreds_of_signals_through_forced_continue_as_new_are_all_seen_once(server: DevServer) -> None:
    world = World(met=lambda world: False, seconds=0.05)

    async def test(running: Running) -> None:
        bounds = Bounds(max_plan_versions=100, max_plan_step_iterations=20)
        handle = await running.start(spec(running.queue, caps=Caps(events=100), bounds=bounds))
        for start in range(0, 600, 50):  # waves, so that every handover meets signals on their way
            await asyncio.gather(*[signal(handle, "steer", text=f"n{n}") for n in range(start, start + 50)])
            await asyncio.sleep(0.2)
        await until(handle, lambda state: state.messages.received >= 600 and state.counters.runs >= 3)
        await signal(handle, "cancel")
        await handle.result()
        final = AgentState.model_validate_json(world.recorded[0].state_json)
        assert sorted(numbers(final, world)) == list(range(600))
        assert len(final.model_dump_json()) < 256_000

    on_server(server.settings, world, test)


def test_messages_that_come_before_two_calls_side_by_side_are_archived_once(server: DevServer) -> None:
    world = World(met=lambda world: False, verdict=lambda request: False, seconds=1.5)

    async def test(running: Running) -> None:
        handle = await running.start()
        await until(handle, lambda state: len(world.performed) == 1)
        await asyncio.gather(*[signal(handle, "steer", text=f"n{n}") for n in range(200)])
        await until(handle, lambda state: len(world.performed) == 2)
        await signal(handle, "cancel")
        await handle.result()
        final = AgentState.model_validate_json(world.recorded[0].state_json)
        assert sorted(numbers(final, world)) == list(range(200))

    on_server(server.settings, world, test)


async def messages_of_the_last_task(handle: Handle) -> int:
    """Return how many signals came with the workflow task in which the run ended."""
    started, before, signals = 0, 0, []
    async for event in handle.fetch_history_events():
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                signals.append(event.event_id)
            case EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                before, started = started, event.workflow_task_completed_event_attributes.started_event_id
    return sum(before < signal < started for signal in signals)


def test_a_run_ends_while_messages_keep_coming_faster_than_its_history_is_replayed(server: DevServer) -> None:
    async def keep_steering(handle: Handle) -> None:
        while True:
            await signal(handle, "steer", text="again")
            await asyncio.sleep(0.01)

    async def test(running: Running) -> None:
        handle = await running.start()
        for n in range(600):  # workflow tasks of their own, so that a replay takes long
            await signal(handle, "steer", text=f"n{n}")
        steering = asyncio.create_task(keep_steering(handle))
        await until(handle, lambda state: state.messages.received > 620)
        await signal(handle, "cancel")
        try:
            async with asyncio.timeout(30):
                assert (await handle.result()).outcome.kind is OutcomeKind.CANCELLED
            assert await messages_of_the_last_task(handle) == 0
        finally:
            steering.cancel()
            await asyncio.gather(steering, return_exceptions=True)

    on_server(server.settings, long_command(), test)


@pytest.mark.slow
def test_thousands_of_messages_during_one_wait_are_all_seen_once_in_order(server: DevServer) -> None:
    world = long_command()

    async def test(running: Running) -> None:
        handle = await running.start()
        await signal(handle, "pause")
        await until(handle, lambda state: state.status is Status.PAUSED)
        for n in range(2500):  # one after the other: their order is known
            await signal(handle, "steer", text=f"n{n}")
        state = await until(handle, lambda state: state.messages.received == 2501)
        assert state.status is Status.PAUSED
        await signal(handle, "cancel")
        await handle.result()
        final = AgentState.model_validate_json(world.recorded[0].state_json)
        assert numbers(final, world) == list(range(2500))
        assert len(final.model_dump_json()) < 256_000

    on_server(server.settings, world, test)
