"""What a run keeps: its frozen texts and prompts at the start, its archive on the way, its row at the end."""

import asyncio
from collections.abc import Callable, Mapping

from activities.registration import implements
from activities.tools.run import secret_guide
from schemas import contract
from schemas.calls import PromptRef
from schemas.digest import sha256_text
from schemas.models import Node
from schemas.state import AgentState
from schemas.texts import TextRef
from schemas.workspace import (
    ArchiveReply,
    ArchiveRequest,
    OpenRunReply,
    OpenRunRequest,
    RecordRunReply,
    RecordRunRequest,
)
from stores.archive import RunArchive
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from stores.records import RunRow

VERSION_DIGITS = 12


class RunActivities:
    """Serves the activities that read and write a run's own records."""

    def __init__(
        self,
        ledger: Ledger,
        artifacts: ArtifactStore,
        archive: RunArchive,
        templates: Mapping[Node, str],
        guide: Callable[[tuple[str, ...]], str],
    ) -> None:
        """Freeze ``templates`` and the tools' ``guide`` into the runs that begin here."""
        self._ledger = ledger
        self._artifacts = artifacts
        self._archive = archive
        self._templates = templates
        self._guide = guide

    @implements(contract.OPEN_RUN)
    async def open_run(self, request: OpenRunRequest) -> OpenRunReply:
        """Store the run's texts and templates, and read what its chain has spent."""
        return await asyncio.to_thread(self._open, request)

    @implements(contract.ARCHIVE_RUN)
    async def archive_run(self, request: ArchiveRequest) -> ArchiveReply:
        """Write one chunk of records."""
        chunk = await asyncio.to_thread(
            self._archive.put_chunk, request.workflow_id, request.first_run_id, request.chunk, request.records_jsonl
        )
        return ArchiveReply(chunk=chunk)

    @implements(contract.RECORD_RUN)
    async def record_run(self, request: RecordRunRequest) -> RecordRunReply:
        """Write the run's one row, with its final state as an artifact."""
        return await asyncio.to_thread(self._record, request)

    def _open(self, request: OpenRunRequest) -> OpenRunReply:
        with self._artifacts.together() as together:
            return self._opened(request, together.put_text)

    def _opened(self, request: OpenRunRequest, put: Callable[[str], TextRef]) -> OpenRunReply:
        prompts = tuple(
            PromptRef(node=node, version=sha256_text(text)[:VERSION_DIGITS], template=put(text))
            for node, text in self._templates.items()
        )
        return OpenRunReply(
            goal=put(request.goal),
            instructions=put(request.instructions),
            tool_guide=put(self._guide(request.tools) + secret_guide(request.secrets)),
            prompts=prompts,
            totals=self._ledger.totals(request.first_run_id),
        )

    def _record(self, request: RecordRunRequest) -> RecordRunReply:
        """Write the last chunk, the state and the row, in this order: whoever finds the row finds the rest."""
        self._archive_rest(request)
        state = self._artifacts.put_bytes(request.state_json.encode())
        self._ledger.record_run(
            RunRow(
                workflow_id=request.workflow_id,
                run_id=request.run_id,
                first_run_id=request.first_run_id,
                name=request.name,
                outcome=request.outcome,
                spend=request.spend,
                started_at=request.started_at,
                ended_at=request.ended_at,
                state=state,
                summary=request.summary,
                evaluator=request.evaluator,
                difference=request.difference,
            )
        )
        return RecordRunReply(state=state, totals=self._ledger.totals(request.first_run_id))

    def _archive_rest(self, request: RecordRunRequest) -> None:
        """Write the events that the final state holds: the archive's folder then tells of the run without anything."""
        state = AgentState.model_validate_json(request.state_json)
        rest = "".join(f"{event.model_dump_json(exclude_defaults=True)}\n" for event in state.events)
        number = state.counters.chunks + 1
        self._archive.put_last_chunk(request.workflow_id, request.first_run_id, number, rest)
