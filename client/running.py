"""The commands that start and follow tasks: run, submit, watch."""

import asyncio
import json
import sys
from pathlib import Path

from client import lines, live
from client.scenarios import load
from client.session import Records, Session, polled, say, start_embedded, with_records, with_session
from client.submit import freeze, start
from schemas.outcome import EXIT_VERIFIED
from schemas.scenario import ModelEntry
from schemas.task import TaskSpec
from schemas.workspace import WorkspaceKind
from stores.artifacts import ArtifactStore
from stores.settings import Settings
from stores.temporal import names_own_server

EXIT_DETACHED = 130


def run(settings: Settings, scenario: Path, override: ModelEntry | None, worker: bool, as_json: bool) -> int:
    """Check, start what is missing, submit, follow to the end; return the exit code of the outcome."""
    spec = _checked(settings, scenario, override)
    start_embedded(settings, worker)
    return with_session(settings, lambda session: _run(session, spec, worker, as_json))


def submit(settings: Settings, scenario: Path, override: ModelEntry | None, worker: bool, as_json: bool) -> int:
    """Check, start what is missing, submit, and print the task's id."""
    spec = _checked(settings, scenario, override)
    start_embedded(settings, worker)

    async def work(session: Session) -> int:
        task_id = await _start(session, spec, worker)
        print(json.dumps({"id": task_id, "rehearsed": _rehearsed(spec)}) if as_json else task_id, flush=True)
        return EXIT_VERIFIED

    return with_session(settings, work)


def watch(settings: Settings, task_id: str, as_json: bool) -> int:
    """Follow a task to its end; return the exit code of the outcome."""
    return with_records(settings, lambda records: _follow(records, task_id, as_json))


def _checked(settings: Settings, scenario: Path, override: ModelEntry | None) -> TaskSpec:
    file = load(scenario)
    spec = freeze(file, settings, ArtifactStore(settings.artifacts_dir), override)
    if spec.workspace.kind is WorkspaceKind.LOCAL:
        say("workspace kind local: commands run without isolation, as this user")
    if _rehearsed(spec):
        say(lines.REHEARSED_NOTICE)
    return spec


def _rehearsed(spec: TaskSpec) -> bool:
    return any(choice.rehearsed for choice in spec.models.values())


async def _start(session: Session, spec: TaskSpec, worker: bool) -> str:
    handle = await start(session.client, session.settings, spec)
    ours = worker and not names_own_server()
    if not ours and not await polled(session.client, session.settings.queue_prefix):
        say(f"no worker polls {session.settings.queue_prefix}; start one with `surefoot worker`")
    return handle.id


async def _run(session: Session, spec: TaskSpec, worker: bool, as_json: bool) -> int:
    task_id = await _start(session, spec, worker)
    print(json.dumps({"type": "started", "id": task_id}) if as_json else f"task {task_id}", flush=True)
    return await _follow(session, task_id, as_json)


async def _follow(records: Records, task_id: str, as_json: bool) -> int:
    try:
        view = await live.follow_to_end(
            records.tasks, task_id, as_json=as_json, on_terminal=sys.stdout.isatty() and not as_json
        )
    except asyncio.CancelledError:  # Ctrl-C: the task does not depend on who watches it
        live.say_detached(task_id)
        return EXIT_DETACHED
    return live.show_ending(view, records.settings.workspaces_dir, as_json=as_json)
