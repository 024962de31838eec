"""What `run`, `submit` and `watch` do once there is a server: start a task, follow it, say how it ended."""

import asyncio
import json
import sys

from client import live
from client.freezing import is_rehearsed
from client.session import Records, Session, check_stores, polled, with_records, with_session
from client.streams import say
from client.submit import start
from schemas.outcome import EXIT_VERIFIED
from schemas.task import TaskSpec
from stores.own_server import names_own_server
from stores.settings import Settings

EXIT_DETACHED = 130


def run(settings: Settings, spec: TaskSpec, worker: bool, as_json: bool) -> int:
    """Start the task and follow it to its end; return the exit code of the outcome."""

    async def work(session: Session) -> int:
        task_id = await _start(session, spec, worker)
        print(json.dumps({"type": "started", "id": task_id}) if as_json else f"task {task_id}", flush=True)
        return await _follow(session, task_id, as_json)

    return with_session(settings, work)


def submit(settings: Settings, spec: TaskSpec, worker: bool, as_json: bool) -> int:
    """Start the task and print its id."""

    async def work(session: Session) -> int:
        task_id = await _start(session, spec, worker)
        print(json.dumps({"id": task_id, "rehearsed": is_rehearsed(spec)}) if as_json else task_id, flush=True)
        return EXIT_VERIFIED

    return with_session(settings, work)


def watch(settings: Settings, task_id: str, as_json: bool) -> int:
    """Follow a task to its end; return the exit code of the outcome."""
    return with_records(settings, lambda records: _follow(records, task_id, as_json))


async def _start(session: Session, spec: TaskSpec, worker: bool) -> str:
    await check_stores(session)
    handle = await start(session.client, session.settings, spec)
    ours = worker and not names_own_server()
    if not ours and not await polled(session.client, session.settings.queue_prefix):
        say(f"no worker polls {session.settings.queue_prefix}; start one with `surefoot worker`")
    return handle.id


async def _follow(records: Records, task_id: str, as_json: bool) -> int:
    try:
        view = await live.follow_to_end(
            records.tasks, task_id, as_json=as_json, on_terminal=sys.stdout.isatty() and not as_json
        )
    except asyncio.CancelledError:  # Ctrl-C: the task does not depend on who watches it
        live.say_detached(task_id)
        return EXIT_DETACHED
    return live.show_ending(view, records.settings.workspaces_dir, as_json=as_json)
