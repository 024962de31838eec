"""What a run archived stays readable, and nothing that was archived is lost."""

from pathlib import Path

import pytest

from stores.archive import RunArchive
from stores.artifacts import ArtifactStore

FIRST = "01a22e4c-2c8c-7432-8ca7-111b31443c9f"
SAME_MINUTE = "01a22e4c-2ca1-7dcb-be33-4af597286af0"


@pytest.fixture
def archive(tmp_path: Path, artifacts: ArtifactStore) -> RunArchive:
    return RunArchive(tmp_path / "archive", artifacts)


def test_a_chunk_is_an_artifact_and_a_readable_file_written_once(archive: RunArchive, artifacts: ArtifactStore) -> None:
    ref = archive.put_chunk("task-x", FIRST, 1, '["a"]')
    assert archive.put_chunk("task-x", FIRST, 1, '["a"]') == ref
    assert artifacts.get_bytes(ref) == b'["a"]'
    folder = archive.folder("task-x", FIRST)
    assert folder.name == "task-x.111b31443c9f"
    assert [path.name for path in folder.iterdir()] == ["0001.json"]


def test_other_records_under_the_same_number_stand_beside_the_first(archive: RunArchive) -> None:
    for records in ('["a"]', '["after a reset"]', '["after another"]', '["after a reset"]'):
        archive.put_chunk("task-x", FIRST, 1, records)
    archive.put_chunk("task-x", FIRST, 2, '["b"]')
    chunks = archive.chunks("task-x", FIRST)
    assert chunks[0] == '["a"]'
    assert chunks[-1] == '["b"]'
    assert sorted(chunks[1:-1]) == ['["after a reset"]', '["after another"]']


def test_chunks_come_in_the_order_of_their_numbers(archive: RunArchive) -> None:
    for number in (10, 2, 10_001, 1):
        archive.put_chunk("task-x", FIRST, number, f"[{number}]")
    assert archive.chunks("task-x", FIRST) == ["[1]", "[2]", "[10]", "[10001]"]
    assert archive.chunks("nobody", FIRST) == []


def test_a_workflow_id_used_again_in_the_same_minute_has_its_own_folder(archive: RunArchive) -> None:
    archive.put_chunk("task-x", FIRST, 1, '["first"]')
    archive.put_chunk("task-x", SAME_MINUTE, 1, '["second"]')
    assert archive.chunks("task-x", SAME_MINUTE) == ['["second"]']


def test_any_workflow_id_stays_inside_the_archive_and_apart_from_others(archive: RunArchive, tmp_path: Path) -> None:
    ids = ["../../evil", "a/b", "a_b", "a:b", "ä" * 900, "x" * 1000, "x" * 999, ".."]
    for workflow_id in ids:
        archive.put_chunk(workflow_id, FIRST, 1, f'["{workflow_id}"]')
    for workflow_id in ids:
        assert archive.chunks(workflow_id, FIRST) == [f'["{workflow_id}"]']
        assert archive.folder(workflow_id, FIRST).parent == tmp_path / "archive"
    assert len(list((tmp_path / "archive").iterdir())) == len(ids)
