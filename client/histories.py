"""What the histories that Temporal has refer to: read as they are stored, before gc removes anything."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from client.problems import PrerequisiteError
from client.session import Session
from schemas.contract import TASK_WORKFLOW
from stores.archive import RunArchive
from stores.artifacts import ArtifactStore
from stores.marking import hashes_in, workspaces_in
from stores.payloads import hidden_encoding


class Unsearchable(PrerequisiteError):
    """A history holds what gc cannot look into, so nobody can say what it refers to."""

    def __init__(self, where: str, event_id: int, encoding: str, way_out: str) -> None:
        """Say what, where, and what to do."""
        super().__init__(
            f"nothing was removed: {where} holds in event {event_id} a payload of the encoding {encoding!r}, which a "
            f"payload codec or a foreign client has written. gc cannot see what it refers to. {way_out}"
        )


@dataclass
class Found:
    """What refers to artifacts and workspaces, as far as Temporal knows."""

    names: frozenset[str]
    """Every artifact that there is."""
    folders: frozenset[str]
    """Every workspace that there is."""
    artifacts: set[str] = field(default_factory=set)
    """Artifacts that some history refers to."""
    workspaces: set[str] = field(default_factory=set)
    """Workspaces that some history speaks of."""
    open_workspaces: set[str] = field(default_factory=set)
    """Those of runs that have not ended."""
    chains: set[str] = field(default_factory=set)
    """First run ids of the chains that Temporal knows."""


async def references(session: Session, names: frozenset[str], folders: frozenset[str]) -> Found:
    """Return what histories refer to, those that Temporal has and those that the archive has kept, and schedules.

    Raises Unsearchable; RPCError where the server does not answer.
    """
    found = Found(names, folders)
    async for item in session.client.list_workflows(f"WorkflowType = '{TASK_WORKFLOW}'"):
        await _mark_history(session, item, found)
    await _mark_schedules(session, found)
    await asyncio.to_thread(_mark_kept, session.archive, session.artifacts, found)
    return found


def content(artifacts: ArtifactStore, name: str) -> bytes:
    """Return an artifact's content; empty where it is not there."""
    try:
        return artifacts.path(name).read_bytes()
    except FileNotFoundError:
        return b""


async def _mark_history(session: Session, item: WorkflowExecution, found: Found) -> None:
    """Mark what one run's history refers to, claims of big payloads among it."""
    handle = session.client.get_workflow_handle(item.id, run_id=item.run_id)
    running = item.status is WorkflowExecutionStatus.RUNNING
    stored = _stored_in(session.artifacts, found.names)
    way_out = (
        "Let gc run once Temporal has forgotten that run, or delete it there: "
        f"temporal workflow delete --workflow-id {item.id} --run-id {item.run_id}"
    )
    try:
        async for event in handle.fetch_history_events():
            encoding = await asyncio.to_thread(hidden_encoding, event, stored)
            if encoding is not None:
                raise Unsearchable(f"the run {item.run_id} of {item.id}", event.event_id, encoding, way_out)
            _mark(event, found, running=running)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:  # its time was up meanwhile: it had ended
            raise


async def _mark_schedules(session: Session, found: Found) -> None:
    """Mark what the inputs of schedules refer to: a run that they will start needs it."""
    async for item in await session.client.list_schedules():
        try:
            described = await session.client.get_schedule_handle(item.id).describe()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # deleted meanwhile
                raise
        else:
            found.artifacts |= hashes_in(described.raw_description.SerializeToString(), found.names)


def _mark(event: HistoryEvent, found: Found, *, running: bool) -> None:
    if event.HasField("workflow_execution_started_event_attributes"):
        found.chains.add(event.workflow_execution_started_event_attributes.first_execution_run_id)
    data = event.SerializeToString()
    found.artifacts |= hashes_in(data, found.names)
    spoken = workspaces_in(data, found.folders)
    found.workspaces |= spoken
    if running:
        found.open_workspaces |= spoken


def _mark_kept(archive: RunArchive, artifacts: ArtifactStore, found: Found) -> None:
    stored = _stored_in(artifacts, found.names)
    for path in archive.histories():
        for event in WorkflowHistory.from_json("kept", path.read_text("utf-8")).events:
            encoding = hidden_encoding(event, stored)
            if encoding is not None:
                raise Unsearchable(str(path), event.event_id, encoding, "Let gc run once that file is elsewhere.")
            found.artifacts |= hashes_in(event.SerializeToString(), found.names)


def _stored_in(artifacts: ArtifactStore, names: frozenset[str]) -> Callable[[Payload], list[bytes]]:
    return lambda claim: [content(artifacts, name) for name in hashes_in(claim.data, names)]
