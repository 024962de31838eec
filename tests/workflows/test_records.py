"""The run's own record: however long its texts are, it can be archived, whole, and the state stays small."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.checks import RequirementState
from schemas.messages import Note
from schemas.plan import PlanVersion, Step
from schemas.state import AgentState, Event, EventKind, Ref
from schemas.workspace import ArchiveRequest
from tests.support.scripted import blob_ref, text_ref
from workflows.control.receive import receive
from workflows.control.records import archive_due, archived, chunk_lines, chunk_to_archive, note_event

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
        request = ArchiveRequest(workflow_id="w", first_run_id="r", chunk=1, records_jsonl=chunk_lines(chunk))
        chunks += chunk
        state = archived(state, len(chunk), blob_ref(request.records_jsonl))
    assert [event.id for event in (*chunks, *state.events)] == ids
    assert not archive_due(state)
    assert len(state.model_dump_json().encode()) < 256_000
    assert state.messages.received == len(ids)


def test_plan_versions_and_long_ids_are_archived_before_the_state_grows_too_large() -> None:
    steps = tuple(Step(id=f"v1.s{n}", title="🦶" * 160, instruction=text_ref("x"), requirements=()) for n in range(12))
    plan = PlanVersion(version=1, why="\x01" * 500, steps=steps)
    state, noted, kept = empty(), 0, 0
    for _ in range(60):
        state = note_event(state, EventKind.PLAN_VERSION, "v1", "\x01" * 800, AT, plan=plan)
        refs = {Ref.EFFECT: "w" * 1000, Ref.ACTION: "e1"}
        state = note_event(state, EventKind.OBSERVATION, "v1.s1.i1.a1", "done", AT, refs=refs)
        noted += 2
        while archive_due(state) and (chunk := chunk_to_archive(state)):
            kept += len(chunk)
            state = archived(state, len(chunk), blob_ref(chunk_lines(chunk)))
        assert len(state.model_dump_json().encode()) < 256_000
    assert kept + len(state.events) == noted
