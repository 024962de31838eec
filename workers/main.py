"""A worker process: ``python -m workers.main [--role all|home|workspace] [--without-litellm]``.

It prints one line of JSON on standard output once it polls, and logs JSON lines on standard error. SIGTERM and SIGINT
stop it gracefully: what runs is interrupted after a few seconds and recorded as that.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from enum import StrEnum
from importlib.util import find_spec

from temporalio.client import Client
from temporalio.worker import Worker

from activities.model.port import Gateway, Gateways
from activities.model.rehearsed import RehearsedGateway
from schemas.outcome import EXIT_PREREQUISITE
from stores.artifacts import ArtifactStore
from stores.database import UnknownRevision
from stores.ledger import Ledger
from stores.settings import Settings, SettingsError, load_settings
from stores.temporal import ServerUnreachable, connect, register_search_attributes
from workers.health import Health, HealthAddressUnusable, checks_of, served
from workers.logs import forward_core_logs, log_json
from workers.roles import Parts, home_worker, workspace_workers

WITHOUT_LITELLM = """serve rehearsed models only, and start faster. Give such a worker a queue of its own: calls of real
models reach it as well, and it leaves them to their next attempt"""


class Serves(StrEnum):
    """What a worker process serves."""

    ALL = "all"
    HOME = "home"
    WORKSPACE = "workspace"


def make_parts(settings: Settings, model: Gateway | None) -> Parts:
    """Open the stores, and choose who answers for models."""
    artifacts = ArtifactStore(settings.artifacts_dir)
    gateways = Gateways(rehearsed=RehearsedGateway(artifacts, settings.rehearsed_record), models=model)
    return Parts(ledger=Ledger(settings.database_url), artifacts=artifacts, gateways=gateways)


def load_model_gateway() -> Gateway | None:
    """Import LiteLLM, which takes seconds, before polling starts; None where it is not installed."""
    if find_spec("litellm") is None:
        return None
    from activities.model.litellm_gateway import LiteLlmGateway

    return LiteLlmGateway()


async def serve(settings: Settings, parts: Parts, serves: Serves) -> None:
    """Poll until SIGTERM or SIGINT."""
    client = await connect(settings)
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
        log_json(settings.log_level)
        forward_core_logs()
        asks_models = flags.role is not Serves.WORKSPACE and not flags.without_litellm
        parts = make_parts(settings, load_model_gateway() if asks_models else None)
        asyncio.run(serve(settings, parts, flags.role))
    except (SettingsError, ServerUnreachable, UnknownRevision, HealthAddressUnusable) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_PREREQUISITE
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Temporal's core threads abort a normal exit now and then
