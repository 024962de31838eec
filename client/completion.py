"""Ids of tasks for the shell's completion: those that run, from Temporal where it is up, and the last ended ones."""

import asyncio
from pathlib import Path

from temporalio.service import RPCError

from client.embedded import server_of
from client.session import open_client
from schemas.contract import TASK_WORKFLOW
from schemas.errors import SurefootError
from stores.ledger import Ledger
from stores.own_server import names_own_server
from stores.settings import Settings, SettingsError, load_settings
from stores.temporal import ServerUnreachable

OFFERED = 100
SQLITE = "sqlite:///"
PATIENCE_SECONDS = 2


def task_ids(incomplete: str) -> list[str]:
    """Return the ids that begin with ``incomplete``, those that run first. Starts nothing, and says nothing."""
    try:
        settings = load_settings()
        found = dict.fromkeys([*_running(settings), *_ended(settings)])
    except (SettingsError, SurefootError, OSError):
        return []
    return [name for name in found if name.startswith(incomplete)][:OFFERED]


def _running(settings: Settings) -> list[str]:
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


def _ended(settings: Settings) -> list[str]:
    if settings.database_url.startswith(SQLITE) and not Path(settings.database_url.removeprefix(SQLITE)).exists():
        return []  # opening it would make it
    return [row.workflow_id for row in Ledger(settings.database_url).runs(OFFERED)]
