"""A worker process that keeps no workflow in memory, so that every workflow task replays its whole history."""

import asyncio
import json
import os
import signal
import sys

from temporalio.worker import Worker

from stores.settings import load_settings
from stores.temporal import connect, register_search_attributes
from stores.tracing import stop_tracing
from workers.belonging import BelongingInterceptor
from workers.logs import log_json
from workers.main import make_parts
from workers.roles import home_activities, workspace_workers
from workers.telemetry import agent_spans, start_runtime
from workflows.agent_task import AgentTask


async def main() -> None:
    settings = load_settings()
    log_json(settings.log_level)
    start_runtime(settings)
    parts = make_parts(settings, None)
    client = await connect(settings)
    await register_search_attributes(client)
    home = Worker(
        client,
        task_queue=settings.queue_prefix,
        workflows=[AgentTask],
        activities=home_activities(settings, parts),
        max_cached_workflows=0,
        interceptors=[BelongingInterceptor(parts.ledger), *agent_spans()],
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    workers = [home, *workspace_workers(client, settings, parts)]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    sys.stdout.write(json.dumps({"ready": True}) + "\n")
    sys.stdout.flush()
    await stop.wait()
    await asyncio.gather(*[worker.shutdown() for worker in workers])
    await asyncio.gather(*running)


if __name__ == "__main__":
    asyncio.run(main())
    stop_tracing()
    sys.stderr.flush()
    os._exit(0)
