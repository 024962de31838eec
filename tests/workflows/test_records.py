"""The run's own record: however long its texts are, it can be archived, whole, and the state stays small."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.checks import RequirementState
from schemas.messages import Note
from schemas.state import AgentState, Event
from schemas.workspace import ArchiveRequest
from tests.support.scripted import blob_ref
from workflows.control.receive import receive
from workflows.control.records import archive_due, archived, chunk_json, chunk_to_archive

AT = "2026-01-01T00:00:00.000+00:00"
# as few bytes, as many bytes and as much JSON as a character may be
texts = st.builds(lambda character, length: character * length, st.sampled_from("x🦶\x01\n"), st.integers(1, 2000))


def empty() -> AgentState:
    """Return a state without events."""
    return AgentState(started_at=AT, requirements=(RequirementState(id="done", mandatory=True),))


@settings(max_examples=20, deadline=None)
@given(messages=st.lists(texts, min_size=1, max_size=40), times=st.integers(1, 20))
@example(messages=["\x01" * 2000] * 40, times=20)
def test_a_burst_of_messages_of_any_length_is_archived_whole(messages: list[str], times: int) -> None:
    state = empty()
    for number, text in enumerate(messages * times):
        state = receive(state, "steer", Note(text=text, id=f"{number:3}" + "🦶" * 90), "", AT)
    ids = [event.id for event in state.events]
    chunks: list[Event] = []
    while archive_due(state) and (chunk := chunk_to_archive(state)):
        request = ArchiveRequest(workflow_id="w", first_run_id="r", chunk=1, records_json=chunk_json(chunk))
        chunks += chunk
        state = archived(state, len(chunk), blob_ref(request.records_json))
    assert [event.id for event in (*chunks, *state.events)] == ids
    assert not archive_due(state)
    assert len(state.model_dump_json().encode()) < 256_000
    assert state.messages.received == len(ids)
