"""What a shell is offered for a word: ids of tasks, and kinds of events. Starts nothing, and says nothing."""

import asyncio
import sqlite3

from schemas.errors import SurefootError
from stores.own_server import names_own_server
from stores.settings import Settings, SettingsError, load_settings
from stores.task_ids import file_of, task_ids

OFFERED = 100
PATIENCE_SECONDS = 2


def offered_tasks(incomplete: str, *, running_only: bool) -> list[str]:
    """Return the ids that begin with ``incomplete``: those that run first, and then, if wanted, the last ended ones."""
    try:
        settings = load_settings()
        found = _running(settings)
        if not running_only:
            found += _ended(settings)
    except (SettingsError, SurefootError, OSError, sqlite3.Error):
        return []
    return [name for name in dict.fromkeys(found) if name.startswith(incomplete)][:OFFERED]


def offered_kinds(incomplete: str) -> list[str]:
    """Return the kinds of events that begin with ``incomplete``."""
    from schemas.state import EventKind

    return [kind.value for kind in EventKind if kind.value.startswith(incomplete)]


def _ended(settings: Settings) -> list[str]:
    file = file_of(settings.database_url)
    if file is not None:
        return task_ids(file, running=False, limit=OFFERED)
    from stores.ledger import Ledger

    return [row.workflow_id for row in Ledger(settings.database_url).runs(OFFERED)]


def _running(settings: Settings) -> list[str]:
    file = file_of(settings.database_url)
    if file is not None:
        return task_ids(file, running=True, limit=OFFERED)
    # a ledger on another machine: nothing here is as quick as asking Temporal
    from temporalio.service import RPCError

    from client.embedded import server_of
    from client.session import open_client
    from schemas.contract import TASK_WORKFLOW
    from stores.temporal import ServerUnreachable

    if not names_own_server() and server_of(settings) is None:
        return []

    async def ask() -> list[str]:
        client = await open_client(settings)
        query = f"WorkflowType = '{TASK_WORKFLOW}' AND ExecutionStatus = 'Running'"
        return [item.id async for item in client.list_workflows(query, limit=OFFERED)]

    try:
        return asyncio.run(asyncio.wait_for(ask(), PATIENCE_SECONDS))
    except (ServerUnreachable, TimeoutError, RPCError):
        return []
