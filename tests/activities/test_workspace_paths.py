"""No path leads out of a workspace, however it is written and whatever links stand in its way."""

import ctypes
import os
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from activities.workspaces.paths import PathRefused, lookup, read_file, split_path, write_file
from activities.workspaces.walking import walk

AT_FDCWD, RENAME_EXCHANGE = -100, 2
SECRET = b"the secret"
NAMES = ("a", "b", "c", "link", "up", "root", "self")


def workspace(folder: Path) -> Path:
    """Make a workspace full of ways out, beside a secret, and return its folder."""
    shutil.rmtree(folder, ignore_errors=True)
    root = folder / "workspace"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "c").write_text("inside")
    (folder / "outside").mkdir()
    (folder / "outside" / "c").write_bytes(SECRET)
    for place in (root, root / "a", root / "a" / "b"):
        (place / "link").symlink_to(folder / "outside")
        (place / "up").symlink_to("..")
        (place / "root").symlink_to("/")
        (place / "self").symlink_to("self")
    (root / "b").symlink_to(folder / "outside" / "c")
    return root


def outside(folder: Path) -> dict[str, bytes]:
    """Return everything that is not the workspace's."""
    found = (folder / "outside").rglob("*")
    return {str(path): path.read_bytes() for path in [*found, *folder.glob("*")] if path.is_file()}


component = st.sampled_from([*NAMES, ".", "..", "", "outside", "new", "a\x00", "x" * 300, "\ud800", "…", "-", "~"])
paths = st.lists(component, min_size=1, max_size=6).map("/".join)


@given(
    path=paths, absolute=st.sampled_from(["", "/", "//", "/workspace/", "{root}/", "{root}/../outside/", "{outside}/"])
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_path_reads_or_writes_outside(tmp_path: Path, path: str, absolute: str) -> None:
    root = workspace(tmp_path / "case")
    before = outside(tmp_path / "case")
    named = absolute.format(root=root, outside=tmp_path / "case" / "outside") + path
    for use in (
        lambda: read_file(root, split_path(root, named), 10**6),
        lambda: write_file(root, split_path(root, named), b"written", tmp_path / "incoming"),
        lambda: walk(root, lambda: False, split_path(root, named)),
        lambda: lookup(root, split_path(root, named)),
    ):
        try:
            given_back: object = use()
        except (PathRefused, OSError, UnicodeEncodeError):
            continue
        assert given_back != SECRET
    assert outside(tmp_path / "case") == before
    assert list((tmp_path / "incoming").glob("*")) == []


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("../outside/c", "contains '..'"),
        ("/etc/passwd", "outside the workspace"),
        ("/workspaces/x", "outside the workspace"),
        ("link/c", "link is a symbolic link"),
        ("b", "b is a symbolic link"),
        ("a", "a is a folder"),
        (".", "names the workspace's folder"),
        ("a/none", "a/none does not exist"),
        ("none/c", "none does not exist"),
        ("a/c/d", "a/c is not a folder"),
        ("pipe", "pipe is a pipe"),
        ("socket", "socket is a socket"),
    ],
)
def test_a_refusal_says_what_is_wrong_with_the_path(tmp_path: Path, path: str, said: str) -> None:
    root = workspace(tmp_path)
    os.mkfifo(root / "pipe")
    os.mknod(root / "socket", stat.S_IFSOCK | 0o600)
    with pytest.raises(PathRefused) as refused:
        read_file(root, split_path(root, path), 100)
    assert said in str(refused.value)


def test_paths_inside_are_understood_as_commands_see_them(tmp_path: Path) -> None:
    root = workspace(tmp_path)
    for path in ("a/c", "./a//c", "/workspace/a/c", f"{root}/a/c"):
        assert read_file(root, split_path(root, path), 100) == b"inside"


def test_a_file_larger_than_allowed_is_refused_with_its_size(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 1001)
    with pytest.raises(PathRefused, match="big has 1,001 bytes, more than the 1,000 allowed"):
        read_file(tmp_path, ("big",), 1000)


def test_writing_keeps_the_mode_and_makes_folders(tmp_path: Path) -> None:
    root = workspace(tmp_path)
    (root / "script").write_text("old")
    (root / "script").chmod(0o755)
    assert write_file(root, ("script",), b"new", tmp_path / "incoming") is False
    assert (root / "script").stat().st_mode & 0o777 == 0o755
    assert write_file(root, ("x", "y", "z"), b"deep", tmp_path / "incoming") is True
    assert (root / "x" / "y" / "z").read_bytes() == b"deep"


@pytest.mark.parametrize("use", ["read", "write"])
def test_a_folder_that_is_swapped_for_a_link_all_the_time_is_no_way_out(tmp_path: Path, use: str) -> None:
    """The race that checking a path first and using it afterwards loses."""
    root = workspace(tmp_path)
    before = outside(tmp_path)
    (root / "d").mkdir()
    (root / "d" / "c").write_text("inside")
    (root / "swap").symlink_to(tmp_path / "outside")
    done = threading.Event()

    def swap() -> None:
        exchange = ctypes.CDLL(None).renameat2
        while not done.is_set():
            exchange(AT_FDCWD, os.fsencode(root / "d"), AT_FDCWD, os.fsencode(root / "swap"), RENAME_EXCHANGE)

    attempts: dict[str, Callable[[], object]] = {
        "read": lambda: read_file(root, ("d", "c"), 100),
        "write": lambda: write_file(root, ("d", "c"), b"inside", tmp_path / "incoming"),
    }
    swapper = threading.Thread(target=swap)
    swapper.start()
    seen: set[str] = set()
    try:
        for _ in range(3000):
            try:
                seen.add(repr(attempts[use]()))
            except (PathRefused, FileNotFoundError) as error:
                seen.add(type(error).__name__)
    finally:
        done.set()
        swapper.join()
    assert repr(SECRET) not in seen
    assert "PathRefused" in seen  # the link was met
    assert len(seen) > 1  # and so was the folder
    assert outside(tmp_path) == before


def test_a_listing_follows_no_link_and_shows_each_name_on_one_line(tmp_path: Path) -> None:
    root = workspace(tmp_path)
    (root / "a" / "two\nlines").write_text("")
    (root / os.fsdecode(b"\xff")).write_text("")
    (root / "back\\slash").write_text("")
    shown = [found.path for found in walk(root, lambda: False).found]
    assert "a/two\\nlines" in shown
    assert "\\udcff" in shown
    assert "back\\\\slash" in shown
    assert all("outside" not in path and "\n" not in path for path in shown)
    assert [path for path in shown if path.startswith("link")] == ["link"]


def test_a_listing_is_bounded_and_counts_the_rest(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}").write_text("")
    listing = walk(tmp_path, lambda: False, max_files=20)
    assert [found.path for found in listing.found] == [f"{number:02}" for number in range(20)]
    assert listing.skipped == 10


def test_folders_nested_too_deep_are_counted_and_not_entered(tmp_path: Path) -> None:
    folder = tmp_path
    for _ in range(150):
        folder /= "d"
        folder.mkdir()
    assert walk(tmp_path, lambda: False).skipped == 1
