"""What a run archived stays readable, nothing that was archived is lost, and what is damaged is said."""

from pathlib import Path

import pytest

from schemas.state import Event, EventKind, Source
from stores.archive import RunArchive, read_chunk
from stores.artifacts import ArtifactStore

FIRST = "01a22e4c-2c8c-7432-8ca7-111b31443c9f"
SAME_MINUTE = "01a22e4c-2ca1-7dcb-be33-4af597286af0"


@pytest.fixture
def archive(tmp_path: Path, artifacts: ArtifactStore) -> RunArchive:
    return RunArchive(tmp_path / "archive", artifacts)


def lines(*numbers: int, text: str = "something\u2028happened 🦶") -> str:
    """Return events as a run archives them."""
    events = [
        Event(
            id=f"e{number}",
            kind=EventKind.NOTE,
            source=Source.CONTROLLER,
            visible=False,
            place="v1",
            at="2026-01-01T00:00:00.000+00:00",
            text=text,
        )
        for number in numbers
    ]
    return "".join(f"{event.model_dump_json(exclude_defaults=True)}\n" for event in events)


def ids(archive: RunArchive, workflow_id: str = "task-x", first_run_id: str = FIRST) -> list[int]:
    """Return the numbers of all events that can be read."""
    return [int(event.id[1:]) for event in archive.read(workflow_id, first_run_id).events]


def test_a_chunk_is_an_artifact_and_a_readable_file_written_once(archive: RunArchive, artifacts: ArtifactStore) -> None:
    ref = archive.put_chunk("task-x", FIRST, 1, lines(1, 2))
    assert archive.put_chunk("task-x", FIRST, 1, lines(1, 2)) == ref
    folder = archive.folder("task-x", FIRST)
    assert folder.name == "task-x.111b31443c9f"
    assert [path.name for path in folder.iterdir()] == ["0001.jsonl"]
    assert artifacts.get_bytes(ref) == (folder / "0001.jsonl").read_bytes()
    chunk = read_chunk(artifacts.get_bytes(ref))
    assert chunk.head is not None
    assert (chunk.head.workflow_id, chunk.head.first_run_id, chunk.head.events, chunk.head.last) == (
        *("task-x", FIRST),
        *(2, False),
    )
    assert ids(archive) == [1, 2]


def test_other_records_under_the_same_number_stand_beside_the_first(archive: RunArchive) -> None:
    first = archive.put_chunk("task-x", FIRST, 1, lines(1, 2))
    for text in ("after a reset", "after another", "after a reset"):
        latest = archive.put_chunk("task-x", FIRST, 1, lines(1, 3, text=text))
    assert len(list(archive.folder("task-x", FIRST).iterdir())) == 3
    assert ids(archive) == [1, 3], "the one written last counts"
    before = archive.read("task-x", FIRST, [first])
    assert [event.id for event in before.events] == ["e1", "e2"], "unless the state says which one does"
    assert archive.read("task-x", FIRST, [latest]).events[0].text == "after a reset"


def test_chunks_come_in_the_order_of_their_numbers(archive: RunArchive) -> None:
    for number in (10, 2, 3, 4, 5, 6, 7, 8, 9, 1):
        archive.put_chunk("task-x", FIRST, number, lines(number * 7))
    assert ids(archive) == [number * 7 for number in range(1, 11)]
    assert archive.read("nobody", FIRST).events == ()


def test_the_end_is_marked_and_events_that_are_there_twice_are_read_once(archive: RunArchive) -> None:
    archive.put_chunk("task-x", FIRST, 1, lines(1, 2, 3))
    assert not archive.read("task-x", FIRST).complete
    archive.put_last_chunk("task-x", FIRST, 2, lines(3, 4))
    found = archive.read("task-x", FIRST)
    assert (found.complete, found.missing) == (True, ())
    assert ids(archive) == [1, 2, 3, 4]


def test_files_that_are_no_chunks_are_left_alone(archive: RunArchive) -> None:
    archive.put_chunk("task-x", FIRST, 1, lines(1, 2))
    folder = archive.folder("task-x", FIRST)
    (folder / "0001 copy.jsonl").write_bytes((folder / "0001.jsonl").read_bytes())
    (folder / "notes").mkdir()
    assert ids(archive) == [1, 2]


def cut(path: Path, keep: int) -> None:
    """Leave only the first ``keep`` bytes."""
    path.write_bytes(path.read_bytes()[:keep])


@pytest.mark.parametrize(
    ("damage", "left", "said"),
    [
        (lambda path: cut(path, len(path.read_bytes()) - 9), [1, 3], "chunk 1 is torn: 1 of its 2 events can be read"),
        (lambda path: cut(path, path.read_bytes().rindex(b"{")), [1, 3], "1 of its 2 events can be read, the last one"),
        (lambda path: cut(path, 20), [3], "chunk 1 has lost its beginning; 0 events of it can be read"),
        (lambda path: cut(path, 0), [3], "chunk 1 has lost its beginning"),
        (lambda path: path.write_bytes(b"\xff\x00{}\n" + path.read_bytes()), [1, 2, 3], "lost its beginning; 2 events"),
        (lambda path: path.unlink(), [3], "chunk 1 is missing"),
    ],
)
def test_a_damaged_archive_opens_and_says_what_is_missing(
    archive: RunArchive, artifacts: ArtifactStore, damage: object, left: list[int], said: str
) -> None:
    first = archive.put_chunk("task-x", FIRST, 1, lines(1, 2))
    second = archive.put_chunk("task-x", FIRST, 2, lines(3))
    damage(archive.folder("task-x", FIRST) / "0001.jsonl")  # type: ignore[operator]
    found = archive.read("task-x", FIRST)
    assert ids(archive) == left
    assert len(found.missing) == 1
    assert said in found.missing[0]
    mended = archive.read("task-x", FIRST, [first, second])
    assert ([event.id for event in mended.events], mended.missing) == (["e1", "e2", "e3"], ()), "by the artifact"
    artifacts.path(first.sha256).unlink()
    assert said in archive.read("task-x", FIRST, [first, second]).missing[0]


def test_what_comes_after_a_torn_line_is_written_apart_from_it(archive: RunArchive) -> None:
    first = archive.put_chunk("task-x", FIRST, 1, lines(1, 2))
    torn = archive.folder("task-x", FIRST) / "0001.jsonl"
    cut(torn, len(torn.read_bytes()) - 9)
    before = torn.read_bytes()
    torn.chmod(0o444)  # not even that keeps the run from going on
    archive.put_chunk("task-x", FIRST, 2, lines(3))
    archive.put_last_chunk("task-x", FIRST, 3, lines(4))
    assert ids(archive) == [1, 3, 4]
    assert archive.read("task-x", FIRST).complete
    assert archive.put_chunk("task-x", FIRST, 1, lines(1, 2)) == first, "an attempt that is made again"
    assert torn.read_bytes() == before
    assert ids(archive) == [1, 2, 3, 4], "mends it beside"


def test_a_workflow_id_used_again_in_the_same_minute_has_its_own_folder(archive: RunArchive) -> None:
    archive.put_chunk("task-x", FIRST, 1, lines(1))
    archive.put_chunk("task-x", SAME_MINUTE, 1, lines(2))
    assert ids(archive, first_run_id=SAME_MINUTE) == [2]
    assert set(archive.chains("task-x")) == {FIRST, SAME_MINUTE}


def test_any_workflow_id_stays_inside_the_archive_and_apart_from_others(archive: RunArchive, tmp_path: Path) -> None:
    names = ["../../evil", "a/b", "a_b", "a:b", "a", "a.b", "[ab]", "ä" * 900, "x" * 1000, "x" * 999, ".."]
    for number, workflow_id in enumerate(names):
        archive.put_chunk(workflow_id, FIRST, 1, lines(number))
    for number, workflow_id in enumerate(names):
        assert ids(archive, workflow_id) == [number]
        assert archive.chains(workflow_id) == [FIRST]
        assert archive.folder(workflow_id, FIRST).parent == tmp_path / "archive"
    assert len(list((tmp_path / "archive").iterdir())) == len(names)
    assert archive.chains("nobody") == []
