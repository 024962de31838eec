"""Records the histories that replay in every test run: ``python -m tests.support.record_histories``.

Until the first release they may be recorded anew, with the reason in the commit; from then on they never change.
"""

import asyncio
import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowFailureError

from schemas.actions import ObservationStatus
from schemas.effects import CallStatus
from schemas.errors import ModelAuth
from schemas.outcome import Status
from schemas.task import Bounds, Caps
from tests.support.running import Handle, Running, signal, until, working
from tests.support.scripted import World, plan_of, spec
from tests.support.server import client_of, running_server

FOLDER = Path(__file__).parent.parent / "histories"


async def record_all(client: Client) -> None:
    """Run one task for each history."""
    async with working(client, World(plan=plan_of("first", "second"))) as running:
        await save(await ended(running), "finished")
    never = World(met=lambda world: False, verdict=lambda request: False)
    async with working(client, never) as running:
        bounds = Bounds(max_plan_versions=2, max_plan_step_iterations=2, max_plan_step_actions=2)
        await save(await ended(running, bounds=bounds), "stopped")
    late = World(met=lambda world: len(world.performed) > 3, status=second_is_ambiguous, lose_attempts=1)
    async with working(client, late) as running:
        await save(await ended(running), "replanned")
    void = World(lose_attempts=1, reconciles_as=ObservationStatus.VOID, met=lambda world: len(world.performed) > 1)
    async with working(client, void) as running:
        await save(await ended(running), "reconciled")
    async with working(client, World(error=ModelAuth("scripted"))) as running:
        await save(await ended(running), "failed")
    async with working(client, World(seconds=60, met=lambda world: False)) as running:
        await save(await paused_steered_cancelled(running), "cancelled")
    async with working(client, World(met=lambda world: False, seconds=0.05)) as running:
        await save_chain(client, running)


def second_is_ambiguous(world: World, request: object) -> CallStatus:
    """Return ambiguous for the second call."""
    return CallStatus.AMBIGUOUS if len(world.asked) == 2 else CallStatus.ANSWERED


async def ended(running: Running, **changes: object) -> Handle:
    """Run a task to its end, whatever that is."""
    handle = await running.start(spec(running.queue, **changes))
    with contextlib.suppress(WorkflowFailureError):
        await handle.result()
    return handle


async def paused_steered_cancelled(running: Running) -> Handle:
    """Run a task that people interfere with in every way."""
    handle = await running.start()
    await until(handle, lambda state: state.status is Status.RUNNING)
    await handle.signal("pause", args=["not", "valid"])
    await signal(handle, "pause", by="ann")
    await until(handle, lambda state: state.status is Status.PAUSED)
    await signal(handle, "steer", by="ann", text="another way")
    await signal(handle, "resume", by="ann")
    await until(handle, lambda state: state.status is Status.RUNNING)
    await signal(handle, "cancel", by="ann", text="enough")
    await handle.result()
    return handle


async def save_chain(client: Client, running: Running) -> None:
    """Record the first runs of a chain that continues as new."""
    bounds = Bounds(max_plan_versions=8, max_plan_step_iterations=2)
    handle = await ended(running, caps=Caps(events=100), bounds=bounds)
    first = handle.first_execution_run_id or handle.result_run_id
    run_id, number = first, 1
    while run_id and number <= 2:
        run = client.get_workflow_handle(handle.id, run_id=run_id)
        history = await run.fetch_history()
        write(history.to_json(), f"handed-over-{number}")
        last = history.events[-1].workflow_execution_continued_as_new_event_attributes
        run_id, number = last.new_execution_run_id, number + 1


async def save(handle: Handle, name: str) -> None:
    """Write the history of a task."""
    write((await handle.fetch_history()).to_json(), name)


def write(history: str, name: str) -> None:
    """Write one file, without what only says on which machine it was recorded."""
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(json.loads(history, object_hook=_without_machine), indent=1)
    (FOLDER / f"{name}.json").write_text(text + "\n")


def _without_machine(item: dict[str, Any]) -> dict[str, Any]:
    return {key: "worker" if key == "identity" else value for key, value in item.items() if key != "stackTrace"}


async def main() -> None:
    """Record on a server of its own."""
    with tempfile.TemporaryDirectory() as home, running_server(Path(home)) as server:
        await record_all(await client_of(server.settings))


if __name__ == "__main__":
    asyncio.run(main())
