"""Two hosts, each with a worker of all queues, and one of them is cut off from everything.

What a task does close to its workflow (models, ledger, decisions) moves to the other host. Its workspace cannot: files
are where they are. So a task whose workspace is on the other host goes on to its end while the first host is away, and
one whose workspace is on the lost host waits for it, and finishes when it is back.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus

from schemas.contract import workspace_queue
from schemas.effects import EffectState
from schemas.workspace import WorkspaceKind
from stores.running import SERVER_FILE, ServerRecord, read_record
from stores.settings import Settings
from tests.proof.bench import Handle, ended, start, with_client
from tests.proof.counting import counting_spec, judge
from tests.support.hosts import Host, two_hosts
from tests.support.postgres import running_postgres
from tests.support.server import DevServer, client_of, settings_of
from tests.support.tasks import WorkerProcess, workspace_spec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

EVERYWHERE = "0.0.0.0"
TASKS = 3
WORDS = 25
COMMAND_SECONDS = 0.4
THINKING_SECONDS = 0.3
TOGETHER_SECONDS = 8.0


@dataclass(frozen=True)
class Cluster:
    """A server and a database on this machine, and two hosts that work for it."""

    settings: Settings
    """As this machine sees them."""
    lost: Host
    """The host that will be cut off."""
    kept: Host
    """The other one."""

    def worker(self, host: Host) -> WorkerProcess:
        """Start a worker of all queues on a host, which knows this machine by the address that it has there."""
        url = self.settings.database_url.replace("@127.0.0.1:", f"@{host.machine_address}:")
        server = read_record(self.settings.run_dir / SERVER_FILE, ServerRecord)
        assert server is not None
        return WorkerProcess(
            settings_of(self.settings.home, database_url=url),
            "--without-litellm",
            inside=host.inside,
            TEMPORAL_ADDRESS=server.address.replace("127.0.0.1", host.machine_address),
        )

    async def start(self, client: Client, host: Host) -> Handle:
        """Start a task whose workspace is on a host."""
        queue = workspace_queue(self.settings.queue_prefix, WorkspaceKind.SANDBOX.value, host.name)
        workspace = workspace_spec(self.settings, queue=queue)
        spec = counting_spec(self.settings, WORDS, COMMAND_SECONDS, THINKING_SECONDS, workspace=workspace)
        return await start(client, self.settings, spec)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with two_hosts() as (lost, kept), running_postgres(EVERYWHERE) as postgres:
        server = DevServer(tmp_path, EVERYWHERE, database_url=postgres.fresh())
        server.start()
        try:
            asyncio.run(_answered(server.settings))
            yield Cluster(server.settings, lost, kept)
        finally:
            server.kill()


async def _answered(settings: Settings) -> None:
    await client_of(settings)


def test_a_task_moves_on_when_one_host_is_cut_off(cluster: Cluster) -> None:
    lost, kept = cluster.worker(cluster.lost), cluster.worker(cluster.kept)
    try:
        with_client(cluster.settings, lambda client: _cut_off(client, cluster))
        assert lost.alive, "it was cut off, not killed"
    finally:
        lost.kill()
        kept.kill()


async def _cut_off(client: Client, cluster: Cluster) -> None:
    elsewhere = [await cluster.start(client, cluster.kept) for _ in range(TASKS)]
    there = await cluster.start(client, cluster.lost)
    await asyncio.sleep(TOGETHER_SECONDS)
    cluster.lost.cut_off()
    cut_at = time.time()
    ends = await asyncio.gather(*(ended(handle) for handle in elsewhere))
    moved_in = time.time() - cut_at
    assert (await there.describe()).status is WorkflowExecutionStatus.RUNNING, "its files are on the lost host"
    before, after = Counter[str](), Counter[str]()
    for end in ends:
        judge(cluster.settings, end)
        for at, host in await completions(end.handle):
            (before if at < cut_at else after)[host] += 1
    both = {cluster.lost.name, cluster.kept.name}
    assert set(before) == both, "before, both hosts worked for tasks whose files are on one of them"
    assert set(after) == {cluster.kept.name}, "then the other one did all of it"
    cluster.lost.plug_in()
    waited = await ended(there)
    rows = judge(cluster.settings, waited)
    unknown = sum(row.state is EffectState.UNKNOWN for row in rows)
    sys.stdout.write(
        f"\nhost cut off: completions before {dict(before)}, after {dict(after)}; {TASKS} tasks ended {moved_in:.0f} s "
        f"later; the one on the lost host after its return, {unknown} unknown effects\n"
    )


async def completions(handle: Handle) -> list[tuple[float, str]]:
    """Return when each workflow task and activity of a run was completed, and by which host."""
    found = []
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            identity = event.activity_task_completed_event_attributes.identity
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            identity = event.workflow_task_completed_event_attributes.identity
        else:
            continue
        found.append((event.event_time.ToMicroseconds() / 1e6, identity.rpartition("@")[2]))
    return found
