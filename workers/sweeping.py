"""Recording, now and then, what ended without a record: see ``stores.unrecorded``."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from temporalio.client import Client
from temporalio.service import RPCError

from schemas.errors import SurefootError
from stores.archive import RunArchive
from stores.settings import Settings
from stores.unrecorded import Unrecorded
from workers.roles import Parts

EVERY_SECONDS = 600.0
"""Temporal keeps a closed run for a day at least; a sweep that fails has many successors."""

log = logging.getLogger("surefoot.worker")


@contextlib.asynccontextmanager
async def sweeping(
    client: Client, settings: Settings, parts: Parts, every_seconds: float = EVERY_SECONDS
) -> AsyncIterator[None]:
    """Sweep in the background for the length of a block."""
    archive = RunArchive(settings.archive_dir, parts.artifacts)
    unrecorded = Unrecorded(client, parts.ledger, parts.artifacts, archive)
    task = asyncio.create_task(_sweep(unrecorded, settings.queue_prefix, every_seconds))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _sweep(unrecorded: Unrecorded, queue: str, every_seconds: float) -> None:
    while True:
        try:
            await unrecorded.record(queue)
        except (RPCError, SurefootError) as error:
            log.warning("runs that ended without a record are looked for later: %s", error)
        await asyncio.sleep(every_seconds)
