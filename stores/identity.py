"""Which stores a process works on: one ledger with one artifact store, by a short name that others can compare.

That an effect happens once, and that a limit holds, rests on all workers of a queue having the same ledger; that a text
is found, on the same artifact store. A ledger knows its artifact store. Workers know each other by a queue that all of
them poll and no task reaches: they poll it under a name that tells their stores. The names of the other pollers stay as
short as they were, since history holds them with every event.
"""

import hashlib
import os
import re
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from schemas.contract import stores_queue
from stores.artifacts import ArtifactStore
from stores.database import shown
from stores.files import storage_problem, write_once
from stores.ledger import Ledger
from stores.offload import KEY_BYTES, KEY_FILE
from stores.settings import Settings

FRESH_POLL_SECONDS = 75.0
"""A poll lasts a minute: a worker that lives has polled within this time. The server lists it for five minutes."""
DIGITS = 8
MAX_HOME_CHARACTERS = 300
_POLLER = re.compile(r"(?P<worker>\S+) stores=(?P<stores>[0-9a-f]+) home=(?P<home>.*)", re.DOTALL)


class StoresDiffer(Exception):
    """This process would work on other stores than it should; the message says which, and what to do."""


@dataclass(frozen=True)
class OtherWorker:
    """A worker on the same queues that uses other stores."""

    worker: str
    """Process and host."""
    stores: str
    """Its stores."""
    home: str
    """Its data folder, on its host."""
    seconds_ago: float
    """When the server last heard of it."""

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.worker} (stores {self.stores}, home {self.home}, heard of {self.seconds_ago:.0f} s ago)"


def bound_stores(settings: Settings, ledger: Ledger, artifacts: ArtifactStore) -> str:
    """Return the name of a worker's stores; what is new belongs together from here on.

    Raises StoresDiffer where the ledger belongs to another artifact store, StorageUnavailable, LedgerUnavailable.
    """
    if ledger.stores()[1] is None:
        write_once(artifacts.root / KEY_FILE, secrets.token_bytes(KEY_BYTES), private=True)
        ledger.stores(_fingerprint(artifacts))
    return known_stores(settings, ledger, artifacts)


def known_stores(settings: Settings, ledger: Ledger, artifacts: ArtifactStore) -> str:
    """Return the name of these stores, and change nothing: no worker has the name of stores that none has used yet.

    Raises StoresDiffer where the ledger belongs to another artifact store, StorageUnavailable, LedgerUnavailable.
    """
    name, belonging = ledger.stores()
    found = _fingerprint(artifacts)
    if belonging is not None and found != belonging:
        what = "is another one" if found else "is not there"
        raise StoresDiffer(
            f"the artifact store of the ledger {shown(settings.database_url)} {what}: {artifacts.root}. Name the data "
            "folder that holds it with SUREFOOT_HOME, or mount it there; or name another database with "
            "SUREFOOT_DATABASE_URL. Lost for good? docs/concepts/operations.md, “Stores belong together”"
        )
    return hashlib.sha256(f"{name}:{belonging}".encode()).hexdigest()[:DIGITS]


def poller_name(settings: Settings, stores: str) -> str:
    """Return the name under which a worker of these stores polls the queue of the stores."""
    return f"{os.getpid()}@{socket.gethostname()} stores={stores} home={str(settings.home)[:MAX_HOME_CHARACTERS]}"


async def workers_of_other_stores(client: Client, settings: Settings, stores: str) -> list[OtherWorker]:
    """Return the workers that serve these queues with other stores, as far as the server has heard of them lately.

    Raises RPCError.
    """
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=stores_queue(settings.queue_prefix)),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
    )
    now, found = time.time(), []
    for poller in (await client.workflow_service.describe_task_queue(request)).pollers:
        said = _POLLER.fullmatch(poller.identity)
        ago = now - poller.last_access_time.ToMilliseconds() / 1000
        if said and said["stores"] != stores and ago < FRESH_POLL_SECONDS:
            found.append(OtherWorker(said["worker"], said["stores"], said["home"], max(0.0, ago)))
    return found


async def refuse_other_stores(client: Client, settings: Settings, stores: str) -> None:
    """Raise StoresDiffer where a worker serves these queues with other stores."""
    others = await workers_of_other_stores(client, settings, stores)
    if others:
        raise StoresDiffer(differing(settings, stores, others))


def differing(settings: Settings, stores: str, others: Sequence[OtherWorker]) -> str:
    """Return what is wrong, and what to do about it."""
    return (
        f"on queue {settings.queue_prefix} other stores are in use: {'; '.join(map(str, others))}. Here: stores "
        f"{stores}, home {settings.home}, ledger {shown(settings.database_url)}. Tasks of both would mix. Give both "
        "the same database_url and the same folder of artifacts (is SUREFOOT_HOME mistyped?), or give one of them "
        "another queue_prefix or Temporal namespace. A worker that has ended counts for up to "
        f"{FRESH_POLL_SECONDS:.0f} s: try again then"
    )


def _fingerprint(artifacts: ArtifactStore) -> str | None:
    """Return what tells this artifact store from others, nothing of which gives its key away; None without a key."""
    path = artifacts.root / KEY_FILE
    try:
        key = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise storage_problem(error, path) or error from error
    return hashlib.sha256(b"surefoot artifact store:" + key).hexdigest()
