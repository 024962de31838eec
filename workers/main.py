"""A worker process: ``python -m workers.main [--role all|home|workspace] [--without-litellm]``.

It prints one line of JSON on standard output once it polls, and logs JSON lines on standard error. SIGTERM and SIGINT
stop it gracefully: what runs is interrupted after a few seconds and recorded as that.
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

from activities.model.port import Gateway, Gateways
from activities.model.rehearsed import RehearsedGateway
from schemas.errors import LedgerUnavailable, StorageUnavailable
from schemas.outcome import EXIT_PREREQUISITE
from stores.artifacts import PATIENCE_SECONDS, ArtifactStore
from stores.database import DatabaseRefused
from stores.files import make_private
from stores.ledger import Ledger
from stores.secrets import Secrets, worker_secrets
from stores.settings import Settings, SettingsError, load_settings
from stores.temporal import ServerUnreachable, connect, register_search_attributes
from stores.tracing import TelemetryUnavailable, stop_tracing
from workers.health import Health, HealthAddressUnusable, checks_of, served
from workers.logs import log_json
from workers.roles import Parts, home_worker, workspace_workers
from workers.telemetry import start_runtime

log = logging.getLogger("surefoot.worker")

WITHOUT_LITELLM = """serve rehearsed models only, and start faster. Give such a worker a queue of its own: calls of real
models reach it as well, and it leaves them to their next attempt"""

REFUSALS = (
    *(SettingsError, ServerUnreachable, TelemetryUnavailable, HealthAddressUnusable),
    *(DatabaseRefused, LedgerUnavailable, StorageUnavailable),
)
"""What keeps a worker from starting; each says what to do about it."""


class Serves(StrEnum):
    """What a worker process serves."""

    ALL = "all"
    HOME = "home"
    WORKSPACE = "workspace"


def make_parts(settings: Settings, model: Gateway | None, secrets: Secrets | None = None) -> Parts:
    """Open the stores, and choose who answers for models. What ``secrets`` knows is masked in all of it.

    Raises LedgerUnavailable, DatabaseRefused, StorageUnavailable.
    """
    make_private(settings.home)
    artifacts = ArtifactStore(settings.artifacts_dir, secrets=secrets, patience_seconds=PATIENCE_SECONDS)
    gateways = Gateways(rehearsed=RehearsedGateway(artifacts, settings.rehearsed_record), models=model)
    return Parts(ledger=Ledger(settings.database_url, patient=True), artifacts=artifacts, gateways=gateways)


def learn(secrets: Secrets) -> None:
    """Learn all that resolve, so that they are masked; one that does not matters only to the tasks that name it."""
    for problem in secrets.learn_all().values():
        log.warning("%s", problem)


def load_model_gateway(secrets: Secrets | None = None) -> Gateway | None:
    """Import LiteLLM, which takes seconds, before polling starts; None where it is not installed."""
    if find_spec("litellm") is None:
        return None
    from activities.model.litellm_gateway import LiteLlmGateway

    return LiteLlmGateway(secrets=secrets)


async def serve(settings: Settings, parts: Parts, serves: Serves) -> None:
    """Poll until SIGTERM or SIGINT."""
    client = await connect(settings, parts.artifacts.secrets.mask)
    await register_search_attributes(client)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    workers = _workers(client, settings, parts, serves)
    health = Health(checks_of(client, workers, parts.ledger))
    said = {"ready": True, "pid": os.getpid(), "queues": [worker.task_queue for worker in workers]}
    async with contextlib.AsyncExitStack() as probes:
        if settings.health:
            said["health"] = await probes.enter_async_context(served(health, settings.health.address))
        running = [asyncio.create_task(worker.run()) for worker in workers]
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([stopping, *running], return_when=asyncio.FIRST_COMPLETED)
        health.drain()
        await asyncio.gather(*[worker.shutdown() for worker in workers])
        await asyncio.gather(*running)


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
        asks_models = flags.role is not Serves.WORKSPACE and not flags.without_litellm
        parts = make_parts(settings, load_model_gateway(secrets) if asks_models else None, secrets)
        asyncio.run(serve(settings, parts, flags.role))
    except REFUSALS as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_PREREQUISITE
    finally:
        stop_tracing()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Temporal's core threads abort a normal exit now and then
