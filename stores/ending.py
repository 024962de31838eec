"""The end of a run, written where Temporal cannot forget it."""

from schemas.state import AgentState
from schemas.workspace import RecordRunReply, RecordRunRequest
from stores.archive import RunArchive
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from stores.records import RunRow


def record_end(
    ledger: Ledger, artifacts: ArtifactStore, archive: RunArchive, request: RecordRunRequest
) -> RecordRunReply:
    """Write the last chunk, the state and the row, in this order: whoever finds the row finds the rest. Blocks.

    Raises LedgerUnavailable, StorageUnavailable, PayloadTooLarge.
    """
    _archive_rest(archive, request)
    state = artifacts.put_bytes(request.state_json.encode())
    ledger.record_run(
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
    return RecordRunReply(state=state, totals=ledger.totals(request.first_run_id))


def _archive_rest(archive: RunArchive, request: RecordRunRequest) -> None:
    """Write the events that the final state holds: the archive's folder then tells of the run without anything."""
    state = AgentState.model_validate_json(request.state_json)
    rest = "".join(f"{event.model_dump_json(exclude_defaults=True)}\n" for event in state.events)
    number = state.counters.chunks + 1
    archive.put_last_chunk(request.workflow_id, request.first_run_id, number, rest)
