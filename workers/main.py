"""A worker process: ``python -m workers.main [--role all|home|workspace] [--without-litellm]``.

It prints one line of JSON on standard output once it polls, or why it does not, and logs JSON lines on standard error.
SIGTERM and SIGINT stop it gracefully: what runs is interrupted after a few seconds and recorded as that.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from enum import StrEnum
from importlib.util import find_spec

from temporalio.client import Client
from temporalio.worker import Worker

from activities.model.port import Deferred, Gateway, Gateways
from activities.model.rehearsed import RehearsedGateway
from schemas.base import clip
from schemas.errors import LedgerUnavailable, StorageUnavailable
from schemas.outcome import EXIT_PREREQUISITE
from stores.artifacts import PATIENCE_SECONDS, ArtifactStore
from stores.database import DatabaseRefused
from stores.files import check_own, make_private
from stores.identity import StoresDiffer, bound_stores, refuse_other_stores
from stores.ledger import Ledger
from stores.running import WorkerRefusal, this_process
from stores.secrets import Secrets, worker_secrets
from stores.settings import Settings, SettingsError, load_settings
from stores.temporal import ServerUnreachable, connect, register_search_attributes
from stores.tracing import TelemetryUnavailable, stop_tracing
from workers.belonging import keep_apart, telling_worker
from workers.health import Health, HealthAddressUnusable, checks_of, served
from workers.logs import log_json
from workers.roles import BUILD_ID, Parts, home_worker, workspace_workers
from workers.sweeping import sweeping
from workers.telemetry import start_runtime

log = logging.getLogger("surefoot.worker")

WITHOUT_LITELLM = """serve rehearsed models only. Give such a worker a queue of its own: calls of real models
reach it as well, and it leaves them to their next attempt"""

FINAL = (SettingsError, TelemetryUnavailable, HealthAddressUnusable, DatabaseRefused)
REFUSALS = (*FINAL, ServerUnreachable, LedgerUnavailable, StorageUnavailable, StoresDiffer)
"""What keeps a worker from starting; each says what to do about it. To wait does not help against a final one."""


class Serves(StrEnum):
    """What a worker process serves."""

    ALL = "all"
    HOME = "home"
    WORKSPACE = "workspace"


def make_parts(settings: Settings, model: Gateway | Deferred | None, secrets: Secrets | None = None) -> Parts:
    """Open the stores, and choose who answers for models. What ``secrets`` knows is masked in all of it.

    Raises LedgerUnavailable, DatabaseRefused, StorageUnavailable.
    """
    make_private(settings.home)
    artifacts = ArtifactStore(settings.artifacts_dir, secrets=secrets, patience_seconds=PATIENCE_SECONDS)
    gateways = Gateways(rehearsed=RehearsedGateway(artifacts, settings.rehearsed_record), models=model)
    return Parts(ledger=Ledger(settings.database_url, patient=True), artifacts=artifacts, gateways=gateways)


def learn(secrets: Secrets) -> None:
    """Learn all that resolve, so that they are masked; one that does not matters only to the tasks that name it."""
    for problem in (*secrets.learn_all().values(), *secrets.unmasked):
        log.warning("%s", problem)


def model_gateway(secrets: Secrets | None = None) -> Deferred | None:
    """Return the adapter to models, which imports LiteLLM at its first request; None where it is not installed."""
    if find_spec("litellm") is None:
        return None

    def make() -> Gateway:
        from activities.model.litellm_gateway import LiteLlmGateway

        return LiteLlmGateway(secrets=secrets)

    return Deferred(make)


async def serve(settings: Settings, parts: Parts, serves: Serves) -> None:
    """Poll until SIGTERM or SIGINT. Raises StoresDiffer where other workers of these queues use other stores."""
    client = await connect(settings, parts.artifacts.secrets.mask)
    await register_search_attributes(client)
    stores = await asyncio.to_thread(bound_stores, settings, parts.ledger, parts.artifacts)
    await refuse_other_stores(client, settings, stores)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    workers = _workers(client, settings, parts, serves)
    health = Health(checks_of(client, workers, parts.ledger))
    said = {"ready": True, "pid": os.getpid(), "queues": [worker.task_queue for worker in workers]}
    async with contextlib.AsyncExitStack() as beside:
        if settings.health:
            said["health"] = await beside.enter_async_context(served(health, settings.health.address))
        serving = [*workers, telling_worker(client, settings, stores, build_id=BUILD_ID)]
        running = [asyncio.create_task(worker.run()) for worker in serving]
        if serves is not Serves.WORKSPACE:
            await beside.enter_async_context(sweeping(client, settings, parts))
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
        stopping = asyncio.create_task(stop.wait())
        apart = asyncio.create_task(keep_apart(client, settings, stores))
        await asyncio.wait([stopping, apart, *running], return_when=asyncio.FIRST_COMPLETED)
        health.drain()
        apart.cancel()  # nothing where it is what has ended
        await asyncio.gather(*[worker.shutdown() for worker in serving])
        await asyncio.gather(*running)
    if not apart.cancelled():
        await apart


def _workers(client: Client, settings: Settings, parts: Parts, serves: Serves) -> list[Worker]:
    home = [home_worker(client, settings, parts)] if serves is not Serves.WORKSPACE else []
    return home + (workspace_workers(client, settings, parts) if serves is not Serves.HOME else [])


def main() -> int:
    """Run a worker; exit code 6 where something that it needs is missing."""
    parser = argparse.ArgumentParser(prog="python -m workers.main", description=__doc__)
    parser.add_argument("--role", type=Serves, choices=list(Serves), default=Serves.ALL, help="what to serve")
    parser.add_argument("--queue-prefix", help="name of the main queue and beginning of all others")
    parser.add_argument("--without-litellm", action="store_true", help=WITHOUT_LITELLM)
    flags = parser.parse_args()
    try:
        settings = load_settings(queue_prefix=flags.queue_prefix)
        secrets = worker_secrets(settings)
        log_json(settings.log_level, secrets.mask)
        start_runtime(settings)
        learn(secrets)
        check_own((settings.artifacts_dir, settings.archive_dir, settings.workspaces_dir))
        asks_models = flags.role is not Serves.WORKSPACE and not flags.without_litellm
        parts = make_parts(settings, model_gateway(secrets) if asks_models else None, secrets)
        asyncio.run(serve(settings, parts, flags.role))
    except REFUSALS as error:
        sys.stderr.write(f"{error}\n")
        refusal = WorkerRefusal(process=this_process(), reason=clip(str(error), 2000), final=isinstance(error, FINAL))
        sys.stdout.write(refusal.model_dump_json() + "\n")
        return EXIT_PREREQUISITE
    finally:
        stop_tracing()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Temporal's core threads abort a normal exit now and then
