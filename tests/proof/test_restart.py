"""A worker that comes back to many long histories replays them all, instead of having each time out on the others."""

import asyncio

import pytest
from temporalio.client import Client

from schemas.messages import Note
from schemas.outcome import OutcomeKind, Status
from schemas.state import TaskResult
from tests.proof.bench import Handle, ended, one_step, rehearsed_spec, start, with_client
from tests.support.running import until
from tests.support.server import DevServer
from tests.support.tasks import commands, reply, worker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TASKS = 12
MESSAGES = 600  # a workflow task each: the replay of one history takes about as long as that of a long run


async def fill(handle: Handle) -> None:
    """Pause a task and make its history long."""
    await handle.signal("pause", Note(by="ann"))
    await until(handle, lambda state: state.status is Status.PAUSED, 60)
    for number in range(MESSAGES):
        await handle.signal("steer", Note(by="ann", text=f"n{number}"))
    await until(handle, lambda state: state.messages.received == MESSAGES + 1, 120)


def test_a_dozen_long_histories_at_once(home: DevServer) -> None:
    settings = home.settings
    spec = rehearsed_spec(settings, one_step("Wait", reply("propose_action", commands("sleep 60"))))

    async def begin(client: Client) -> list[str]:
        handles = [await start(client, settings, spec) for _ in range(TASKS)]
        await asyncio.gather(*(fill(handle) for handle in handles))
        return [handle.id for handle in handles]

    async def end(client: Client, ids: list[str]) -> None:
        handles: list[Handle] = [client.get_workflow_handle(name, result_type=TaskResult) for name in ids]
        for handle in handles:
            await handle.signal("cancel", Note(by="ann"))
        results = await asyncio.gather(*(ended(handle, 120) for handle in handles))
        assert {item.outcome.kind for item in results} == {OutcomeKind.CANCELLED}

    with worker(settings):
        ids = with_client(settings, begin)
    with worker(settings):
        with_client(settings, lambda client: end(client, ids))
