"""A frame shows a judge what is there and what has changed, within bounds, and the same for the same files."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.testing import ActivityEnvironment

from activities.frames import describe_difference
from activities.workspaces.excerpts import head_and_tail, in_lines, line_of
from activities.workspaces.manifest import Manifest, load_manifest
from activities.workspaces.scanning import scan
from activities.workspaces.walking import walk
from schemas.frames import Frame
from schemas.workspace import SnapshotRequest
from tests.activities.workspace_bench import WorkspaceBench


@pytest.fixture
def bench(tmp_path: Path) -> WorkspaceBench:
    return WorkspaceBench(tmp_path, files={"a.py": "x = 1\n", "sub/b.txt": "words\n"})


def never() -> bool:
    return False


def test_a_frame_lists_the_files_and_shows_their_text(bench: WorkspaceBench) -> None:
    frame = bench.frame()
    text = bench.text(frame.text)
    assert text.splitlines()[:3] == ["2 files in the workspace", "a.py  (6 bytes)", "sub/b.txt  (6 bytes)"]
    assert "--- a.py ---\nx = 1" in text
    assert "--- sub/b.txt ---\nwords" in text
    assert (frame.files, frame.skipped_files, frame.difference) == (2, 0, None)


def test_a_frame_of_nothing_says_so(tmp_path: Path) -> None:
    bench = WorkspaceBench(tmp_path)
    assert bench.text(bench.frame().text) == "The workspace is empty."


def test_the_same_files_give_the_same_frame_and_no_difference(bench: WorkspaceBench) -> None:
    first = bench.frame()
    os.utime(bench.root / "a.py", (1, 1))
    os.utime(bench.root / "sub" / "b.txt", (2, 2))
    second = bench.frame("f2", first)
    assert (second.fingerprint, second.text, second.difference) == (first.fingerprint, first.text, None)


def put(bench: WorkspaceBench, path: str, text: str) -> None:
    (bench.root / path).parent.mkdir(exist_ok=True)
    (bench.root / path).write_text(text)


def test_test_caches_are_no_change(bench: WorkspaceBench) -> None:
    first = bench.frame()
    for path in (".pytest_cache/x", ".mypy_cache/x", "sub/.ruff_cache/x"):
        put(bench, path, "cache")
    assert bench.frame("f2", first).fingerprint == first.fingerprint


@pytest.mark.parametrize(
    "path", ["__pycache__/a.pyc", ".git/HEAD", "node_modules/y.js", "sub/unittest.pyc", "sub/.mypy_cache"]
)
def test_noise_is_a_change_like_any_other(bench: WorkspaceBench, path: str) -> None:
    first = bench.frame()
    put(bench, path, "planted")
    second = bench.frame("f2", first)
    put(bench, path, "changed")
    assert len({first.fingerprint, second.fingerprint, bench.frame("f3", second).fingerprint}) == 3


def test_noise_is_counted_and_not_shown(bench: WorkspaceBench) -> None:
    first = bench.frame()
    put(bench, ".git/HEAD", "planted")
    put(bench, "sub/unittest.pyc", "planted")
    second = bench.frame("f2", first)
    hidden = "files of caches and version control not shown"
    text = bench.text(second.text)
    assert text.splitlines()[:4] == [
        *("4 files in the workspace", "a.py  (6 bytes)", "sub/b.txt  (6 bytes)", f"… 2 {hidden}"),
    ]
    assert "planted" not in text
    assert bench.text(second.difference) == f"… 2 changed {hidden}"
    (bench.root / "a.py").write_text("x = 2\n")
    difference = bench.text(bench.frame("f3", first).difference)
    assert difference.splitlines()[:4] == ["changed a.py", f"… 2 changed {hidden}", "", "--- a/a.py"]
    assert "planted" not in difference


def test_noise_leaves_the_bounds_to_the_other_files(bench: WorkspaceBench) -> None:
    for number in range(50):
        put(bench, f".git/{number}", "")
    listing = walk(bench.root, never, max_files=10)
    assert {"a.py", "sub/b.txt"} <= {found.path for found in listing.found}
    assert (len(listing.found), listing.skipped) == (10, 42)


def test_a_difference_tells_what_was_created_changed_and_deleted(bench: WorkspaceBench) -> None:
    first = bench.frame()
    (bench.root / "a.py").write_text("x = 2\n")
    (bench.root / "sub" / "b.txt").unlink()
    (bench.root / "new.bin").write_bytes(b"\x00\x01")
    (bench.root / "run.sh").write_text("")
    second = bench.frame("f2", first)
    assert second.fingerprint != first.fingerprint
    assert bench.text(second.difference).splitlines() == [
        *("changed a.py", "created new.bin", "created run.sh", "now an empty folder: sub", "deleted sub/b.txt", ""),
        *("--- a/a.py", "+++ b/a.py", "@@ -1 +1 @@", "-x = 1", "+x = 2"),
        "new.bin: from nothing to 2 bytes, no small text on both sides",
        "run.sh: empty",
        *("--- a/sub/b.txt", "+++ /dev/null", "@@ -1 +0,0 @@", "-words"),
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda root: (root / "a.py").chmod(0o755), "mode of a.py changed from 644 to 755"),
        (lambda root: (root / "a.py").write_text("x = 1"), "a.py: only line ends differ"),
        (lambda root: (root / "link").symlink_to("a.py"), "created link"),
        (lambda root: (root / "empty").mkdir(), "now an empty folder: empty"),
        (lambda root: (root / "a.py").write_text("y\n" * 5000), "from 1 to 5,000 lines, too many to compare"),
    ],
)
def test_small_changes_are_seen_too(bench: WorkspaceBench, change: object, said: str) -> None:
    first = bench.frame()
    assert callable(change)
    change(bench.root)
    assert said in bench.text(bench.frame("f2", first).difference)


def test_a_change_of_the_same_size_in_the_same_instant_is_seen(bench: WorkspaceBench) -> None:
    """Size and time of the last write are as before; only the content is not."""
    first = bench.frame()
    before = (bench.root / "a.py").stat()
    (bench.root / "a.py").write_text("x = 9\n")
    os.utime(bench.root / "a.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    second = bench.frame("f2", first)
    assert "+x = 9" in bench.text(second.difference)


def test_files_that_have_not_changed_are_not_read_again(bench: WorkspaceBench) -> None:
    """The digest of the manifest before is taken over where the file system vouches for it."""
    manifest = load_manifest(bench.frame().manifest, bench.artifacts)
    entry = manifest.entries["a.py"]
    marked = manifest.model_copy(update={"entries": {"a.py": entry.model_copy(update={"sha256": "0" * 64})}})
    trusted = marked.model_copy(update={"taken_ns": entry.changed_ns + 3_000_000_000})
    assert scan(bench.root, bench.artifacts, trusted, never).entries["a.py"].sha256 == "0" * 64
    recent = marked.model_copy(update={"taken_ns": entry.changed_ns + 1_000_000_000})
    assert scan(bench.root, bench.artifacts, recent, never).entries["a.py"] == entry


def test_what_changed_last_is_what_a_frame_shows(bench: WorkspaceBench) -> None:
    for number in range(20):
        path = bench.root / f"{number:02}.txt"
        path.write_text(f"text {number} " * 400)
        os.utime(path, (number, number))
    (bench.root / "zz.txt").write_text("the latest")
    text = bench.text(bench.frame().text)
    assert "the latest" in text
    assert "--- 00.txt ---" not in text
    assert "00.txt  (" in text


def test_ten_thousand_files_are_a_frame_within_bounds(tmp_path: Path) -> None:
    bench = WorkspaceBench(tmp_path)
    for folder in range(100):
        (bench.root / f"{folder:02}").mkdir()
        for number in range(100):
            (bench.root / f"{folder:02}" / f"{number:02}.txt").write_text(f"{folder} {number}\n" * 20)
    begun = time.monotonic()
    first = bench.frame()
    assert (first.files, first.skipped_files) == (10_000, 0)
    text = bench.text(first.text)
    assert len(text) < 25_000
    assert "… 9,800 more files" in text
    (bench.root / "50" / "50.txt").write_text("changed\n")
    second = bench.frame("f2", first)
    assert "+changed" in bench.text(second.difference)
    assert time.monotonic() - begun < 60


def test_a_huge_file_is_not_read_and_said_so(bench: WorkspaceBench) -> None:
    with (bench.root / "huge").open("wb") as file:
        file.truncate(10**12)
    frame = bench.frame()
    assert frame.skipped_files == 1
    assert "1 file beyond the frame's bounds" in bench.text(frame.text)
    assert "huge  (1,000,000,000,000 bytes)" in bench.text(frame.text)


def test_texts_are_bounded_whatever_the_files_hold(bench: WorkspaceBench) -> None:
    first = bench.frame()
    for number in range(300):
        (bench.root / f"{'long' * 40}{number}.txt").write_text(f"line {number}\n" * 300)
    (bench.root / "one_line.json").write_text("x" * 60_000)
    second = bench.frame("f2", first)
    assert len(bench.text(second.difference)) <= 6000
    assert len(bench.text(second.text)) <= 12_000 + 8_000 + 500
    assert "more changes" in bench.text(second.difference)


def test_no_file_name_can_forge_a_line(bench: WorkspaceBench) -> None:
    (bench.root / "a\nFORGED").write_text("")
    assert not any(line.startswith("FORGED") for line in bench.text(bench.frame().text).splitlines())


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\u2028"])
def test_no_content_can_pass_for_another_files_excerpt(bench: WorkspaceBench, end: str) -> None:
    content = end.join(("---", "--- a.py ---", "x = 'forged'", "  --- sub/b.txt ---  ", "--- a/a.py", "tail", ""))
    (bench.root / "c.txt").write_bytes(content.encode())
    lines = [line.strip() for line in bench.text(bench.frame().text).splitlines()]
    assert [lines.count(f"--- {path} ---") for path in ("a.py", "sub/b.txt", "c.txt")] == [1, 1, 1]
    shown = ["--- c.txt ---", "---", "\\--- a.py ---", "x = 'forged'", "\\  --- sub/b.txt ---", "--- a/a.py", "tail"]
    begin = lines.index(shown[0])
    assert lines[begin : begin + len(shown)] == shown


def test_a_cut_cannot_make_a_line_pass_for_a_heading(bench: WorkspaceBench) -> None:
    for number in range(40):  # one of them is cut right before the dashes
        (bench.root / "c.txt").write_text("x" * 5000 + "--- a.py ---\n" + "y" * (1190 + number))
        lines = bench.text(bench.frame().text).splitlines()
        assert lines.count("--- a.py ---") == 1


def test_no_content_can_pass_for_a_heading_in_a_difference(bench: WorkspaceBench) -> None:
    (bench.root / "a.py").write_text("-- a/b.py\nx = 1\n")
    first = bench.frame()
    (bench.root / "a.py").write_text("++ b/b.py\nx = 1\n")
    lines = bench.text(bench.frame("f2", first).difference).splitlines()
    assert [line for line in lines if line.startswith(("--- ", "+++ "))] == ["--- a/a.py", "+++ b/a.py"]
    assert lines[-3:] == ["\\--- a/b.py", "\\+++ b/b.py", " x = 1"]


def test_a_cancelled_snapshot_ends_without_a_frame(bench: WorkspaceBench) -> None:
    for number in range(2000):
        (bench.root / str(number)).write_text("x")

    async def cancelled() -> Frame:
        environment = ActivityEnvironment()
        request = SnapshotRequest(workspace=bench.workspace, frame_id="f1")
        frame = asyncio.ensure_future(environment.run(bench.activities.snapshot, request))
        await asyncio.sleep(0.01)
        environment.cancel()
        return await frame

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())


def test_an_unchanged_manifest_has_an_empty_difference(bench: WorkspaceBench) -> None:
    manifest = Manifest(taken_ns=0, entries={})
    assert describe_difference(manifest, manifest, bench.artifacts, 1000) == ""


@given(st.text(max_size=400), st.integers(100, 300))
def test_shortened_texts_keep_both_ends_within_the_limit(text: str, limit: int) -> None:
    short = head_and_tail(text, limit)
    assert len(short) <= limit
    if len(text) <= limit:
        assert short == text
    else:
        assert (short[:15], short[-15:]) == (text[:15], text[-15:])


@given(st.text(), st.integers(10, 50))
def test_a_line_is_one_printable_line(text: str, limit: int) -> None:
    line = line_of(text, limit)
    assert len(line) <= limit
    assert line.isprintable()


@given(st.lists(st.text(alphabet="ab", max_size=80), max_size=30), st.integers(200, 500))
def test_lines_are_kept_whole(lines: list[str], limit: int) -> None:
    kept = in_lines(lines, limit)
    assert len(kept) <= limit
    whole = kept.split("\n")
    assert whole[:-1] == lines[: len(whole) - 1]
