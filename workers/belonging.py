"""Whom a worker works with: it goes on only with chains of its own ledger, and beside workers of its own stores.

The second is looked at when a worker starts, and now and then. What cannot be seen that way, the first holds off: a
call of a chain that this ledger does not know is left to a worker whose ledger does. Calls carry nothing for it: they
name their chain anyway.
"""

import asyncio
import logging
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker

from activities.registration import heartbeats, to_application_error
from schemas.contract import stores_queue
from schemas.errors import LedgerUnavailable, SurefootError
from schemas.workspace import OpenRunRequest
from stores.identity import StoresDiffer, differing, poller_name, workers_of_other_stores
from stores.ledger import Ledger
from stores.settings import Settings

FIRST_LOOK_SECONDS = 2.0  # workers that start together see each other only once both poll
LOOK_EVERY_SECONDS = 60.0
MAX_KNOWN = 10_000

log = logging.getLogger("surefoot.worker")


class BelongingInterceptor(Interceptor):
    """Leaves the calls of chains that were begun in another ledger to the workers of that one."""

    def __init__(self, ledger: Ledger) -> None:
        """Ask ``ledger``, once for each chain."""
        self._ledger = ledger
        self._known: set[str] = set()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Stand before every activity."""
        return _Inbound(next, self)

    async def admit(self, request: object) -> None:
        """Let the calls of a chain of ours pass; one that begins here is ours from now on.

        Raises LedgerUnavailable for one of another ledger's: Temporal tries again, maybe with another worker, and the
        run waits as it does for any ledger that is away.
        """
        chain = chain_of(request)
        if chain is None or chain in self._known:
            return
        if isinstance(request, OpenRunRequest) and request.run_id == request.first_run_id:
            await asyncio.to_thread(self._ledger.begin, chain)
        elif not await asyncio.to_thread(self._ledger.knows, chain):
            raise LedgerUnavailable(
                f"chain {chain} was begun in another ledger than this worker's: the workers of this queue use "
                "different stores, or the ledger was replaced; `surefoot doctor` tells"
            )
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known.add(chain)


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, belonging: BelongingInterceptor) -> None:
        super().__init__(next)
        self._belonging = belonging

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        try:
            with heartbeats(wanted=True):  # the ledger may be waited for
                for request in input.args:
                    await self._belonging.admit(request)
        except SurefootError as error:
            raise to_application_error(error) from None
        return await super().execute_activity(input)


def chain_of(request: object) -> str | None:
    """Return the first run id of the chain that a request names, None where it names none."""
    chain = getattr(getattr(request, "key", request), "first_run_id", None)
    return chain if isinstance(chain, str) else None


@activity.defn(name="stores")
async def _nobody_calls_this() -> None:
    """Stand for something to do: a worker polls for nothing else."""


def telling_worker(client: Client, settings: Settings, stores: str, build_id: str) -> Worker:
    """Return the worker that tells the others which stores this process uses; it never gets anything to do."""
    return Worker(
        client,
        task_queue=stores_queue(settings.queue_prefix),
        activities=[_nobody_calls_this],
        identity=poller_name(settings, stores),
        build_id=build_id,
    )


async def keep_apart(client: Client, settings: Settings, stores: str) -> None:
    """Look now and then who else serves these queues, for ever.

    Raises StoresDiffer where workers of different stores have come to poll side by side after all, and it is these ones
    that should end: those of the greater name, so that some go on.
    """
    seconds = FIRST_LOOK_SECONDS
    while True:
        await asyncio.sleep(seconds)
        seconds = LOOK_EVERY_SECONDS
        try:
            others = await workers_of_other_stores(client, settings, stores)
        except RPCError as error:
            log.debug("the other workers are unknown: %s", error)
            continue
        if others:
            said = differing(settings, stores, others)
            if stores > min(other.stores for other in others):
                raise StoresDiffer(said)
            log.error("%s", said)
