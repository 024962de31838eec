"""What a run keeps: its frozen texts and prompts at the start, its archive on the way, its row at the end."""

import asyncio
from collections.abc import Callable, Mapping

from activities.registration import implements
from activities.tools.run import secret_guide
from schemas import contract
from schemas.calls import PromptRef
from schemas.digest import sha256_text
from schemas.models import Node
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
from stores.ending import record_end
from stores.ledger import Ledger

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
        return await asyncio.to_thread(record_end, self._ledger, self._artifacts, self._archive, request)

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
