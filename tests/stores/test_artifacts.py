"""Artifacts are whole, stored once, and checked when they are read."""

import contextlib
import hashlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ArtifactMissing, PayloadTooLarge
from schemas.texts import BlobRef, TextRef, estimate_tokens
from stores.artifacts import ArtifactStore
from stores.files import write_all_atomically, write_atomically, write_once
from stores.ledger import Ledger
from stores.offload import signing_key
from tests.stores.intents import start, wait_for_line


@given(text=st.text())
def test_a_text_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    store = ArtifactStore(tmp_path_factory.getbasetemp() / "texts")
    ref = store.put_text(text)
    assert ref == TextRef(
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        size_bytes=len(text.encode()),
        tokens=estimate_tokens(text),
    )
    assert store.get_text(ref) == text


def test_a_lone_surrogate_of_a_model_is_stored_as_a_question_mark(artifacts: ArtifactStore) -> None:
    ref = artifacts.put_text("a\ud800b")
    assert artifacts.get_text(ref) == "a?b"
    assert ref.tokens == estimate_tokens("a?b")


def test_the_same_content_is_stored_once(artifacts: ArtifactStore) -> None:
    ref = artifacts.put_bytes(b"x")
    before = artifacts.path(ref.sha256).stat()
    assert artifacts.put_bytes(b"x") == ref
    assert artifacts.path(ref.sha256).stat().st_ino == before.st_ino


def test_an_artifact_is_removed_only_where_nobody_has_put_it_of_late(artifacts: ArtifactStore) -> None:
    ref = artifacts.put_bytes(b"four")
    path = artifacts.path(ref.sha256)
    os.utime(path, (1000, 1000))
    assert artifacts.remove(ref.sha256, 1000) == 0, "put at that very moment"
    artifacts.put_bytes(b"four")
    assert artifacts.remove(ref.sha256, 2000) == 0, "put again since"
    os.utime(path, (1000, 1000))
    assert artifacts.names() == {ref.sha256}
    assert artifacts.remove(ref.sha256, 1001) == 4
    assert artifacts.remove(ref.sha256, 1001) == 0
    assert (artifacts.names(), list(path.parent.iterdir())) == (frozenset(), [])


def test_a_key_and_half_written_files_are_no_artifacts(artifacts: ArtifactStore) -> None:
    ref = artifacts.put_bytes(b"x")
    (artifacts.root / "claims.key").write_bytes(b"secret")
    (artifacts.path(ref.sha256).parent / ".0123.tmp").write_bytes(b"half")
    assert artifacts.names() == {ref.sha256}


def test_a_data_folder_that_is_made_is_its_owners_and_so_is_the_key_wherever_it_lies(tmp_path: Path) -> None:
    """Whoever reads the key can sign claims, and histories and logs are nobody else's matter."""
    before = os.umask(0o022)
    try:
        ArtifactStore(tmp_path / "first" / "artifacts").put_bytes(b"x")
        Ledger(f"sqlite:///{tmp_path}/second/surefoot.db")
        (tmp_path / "old").mkdir()
        ArtifactStore(tmp_path / "old" / "artifacts").put_bytes(b"x")
        assert [_rights(tmp_path / name) for name in ("first", "second", "old")] == [0o700, 0o700, 0o755]
        signing_key(tmp_path / "old" / "artifacts")
    finally:
        os.umask(before)
    assert _rights(tmp_path / "old" / "artifacts" / "claims.key") == 0o600


def _rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_putting_and_removing_at_once_never_loses_what_was_put_last(artifacts: ArtifactStore) -> None:
    """Each put must survive a collector whose limit lies before it, however the two are interleaved."""
    ref = artifacts.put_bytes(b"contested")
    path = artifacts.path(ref.sha256)
    with ThreadPoolExecutor(4) as pool:
        for _ in range(200):
            with contextlib.suppress(FileNotFoundError):
                os.utime(path, (1000, 1000))
            removing = [pool.submit(artifacts.remove, ref.sha256, 2000.0) for _ in range(2)]
            putting = [pool.submit(artifacts.put_bytes, b"contested") for _ in range(2)]
            assert all(future.result() >= 0 for future in removing)
            assert all(future.result() == ref for future in putting)
            assert artifacts.get_bytes(ref) == b"contested"


def test_what_is_not_there_is_missing(artifacts: ArtifactStore) -> None:
    with pytest.raises(ArtifactMissing, match="no artifact sha256:dddd"):
        artifacts.get_bytes(BlobRef(sha256="d" * 64, size_bytes=1))


@pytest.mark.parametrize("damage", [b"", b"half", b"other conten"])
def test_a_damaged_artifact_is_never_returned_and_a_new_put_mends_it(artifacts: ArtifactStore, damage: bytes) -> None:
    ref = artifacts.put_bytes(b"the contents")
    artifacts.path(ref.sha256).write_bytes(damage)
    with pytest.raises(ArtifactMissing, match="damaged"):
        artifacts.get_bytes(ref)
    artifacts.put_bytes(b"the contents")
    assert artifacts.get_bytes(ref) == b"the contents"


def test_an_artifact_over_the_limit_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "small", max_bytes=10)
    store.put_bytes(b"1234567890")
    with pytest.raises(PayloadTooLarge, match="11 bytes is more than 10"):
        store.put_text("12345678901")
    assert len([path for path in (tmp_path / "small").rglob("*") if path.is_file()]) == 1


def test_processes_that_store_the_same_and_are_killed_leave_only_whole_artifacts(tmp_path: Path) -> None:
    processes = [start("tests.stores.artifact_process", str(tmp_path)) for _ in range(3)]
    for process in processes:
        while int(wait_for_line(process)) < 10:
            pass
        process.kill()
        process.communicate(timeout=10)
    named = [path for path in tmp_path.rglob("*") if path.is_file() and not path.name.startswith(".")]
    assert len(named) >= 10
    for path in named:
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name


def test_of_many_writers_exactly_one_writes_once(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "once"
    with ThreadPoolExecutor(8) as pool:
        wrote = list(pool.map(lambda number: write_once(target, str(number).encode() * 10_000), range(8)))
    assert sum(wrote) == 1
    assert target.read_bytes() == str(wrote.index(True)).encode() * 10_000
    assert [path.name for path in target.parent.iterdir()] == ["once"], "no temporary file is left"


def test_a_reader_of_a_file_that_is_replaced_sees_the_old_or_the_new_content(tmp_path: Path) -> None:
    target = tmp_path / "f"
    contents = [bytes([number]) * 2_000_000 for number in range(10)]
    write_atomically(target, contents[0])
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(lambda: list(map(partial(write_atomically, target), contents * 3)))
        while not writing.done():
            assert target.read_bytes() in contents
        writing.result()
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_what_is_put_together_is_readable_inside_and_on_disk_afterwards(artifacts: ArtifactStore) -> None:
    old = artifacts.put_text("old")
    with artifacts.together() as together:
        refs = [together.put_text(text) for text in ("one", "two", "old", "two")]
        assert [together.get_text(ref) for ref in (*refs, old)] == ["one", "two", "old", "two", "old"]
        with pytest.raises(ArtifactMissing):
            artifacts.get_text(refs[0])
    assert [artifacts.get_text(ref) for ref in refs] == ["one", "two", "old", "two"]
    assert artifacts.names() == {ref.sha256 for ref in refs}


def test_what_was_put_together_before_an_error_is_not_there(artifacts: ArtifactStore) -> None:
    def fail() -> None:
        with artifacts.together() as together:
            together.put_text("one")
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    assert artifacts.names() == frozenset()


def test_files_written_together_leave_nothing_half_written_where_one_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way of a folder")
    with pytest.raises(OSError):
        write_all_atomically({tmp_path / "a" / "one": b"1", tmp_path / "file" / "two": b"2"})
    assert list((tmp_path / "a").iterdir()) == []
