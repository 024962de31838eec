"""A worker for the bare workflow, in a process of its own, with the options of the product's workers."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from bench.bare import QUEUE, WORKSPACE_QUEUE, Bare
from bench.gateway import Play
from bench.marks import Marks
from schemas.contract import Role, all_refs
from stores.running import SERVER_FILE, ServerRecord, read_record
from stores.settings import load_settings
from workers.roles import HEARTBEAT_THROTTLE, STICKY


async def serve(marks: Marks) -> None:
    """Poll both queues until killed."""
    server = read_record(load_settings().run_dir / SERVER_FILE, ServerRecord)
    assert server is not None, "the bench starts the server first"
    client = await Client.connect(server.address)  # Temporal's own converter, no plugin
    queues = {QUEUE: Role.HOME, WORKSPACE_QUEUE: Role.WORKSPACE}
    workers = [
        Worker(
            client,
            task_queue=queue,
            workflows=[Bare] if role is Role.HOME else [],
            activities=[_activity(ref.name, marks) for ref in all_refs() if ref.cls.role is role],
            sticky_queue_schedule_to_start_timeout=STICKY,
            max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        )
        for queue, role in queues.items()
    ]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    sys.stdout.write(json.dumps({"ready": True, "pid": os.getpid()}) + "\n")
    sys.stdout.flush()
    await asyncio.gather(*running)


def _activity(name: str, marks: Marks) -> Callable[..., Any]:
    async def answer(request: str) -> str:
        marks.mark(name, activity.info().workflow_id or "")
        return "x" * (int(request.split(" ", 1)[0]) - 2)

    return activity.defn(name=name)(answer)


if __name__ == "__main__":
    play = Play.model_validate_json(os.environ["BENCH"])
    asyncio.run(serve(Marks(Path(play.marks), play.server_pid, play.marked)))
