"""Files of a workspace, reached so that nothing leads out of it.

Every path is walked one component at a time by directory descriptors, never following a link: what a command changes
between a check and its use cannot matter, since there is no check apart from the use.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from activities.workspaces.sandbox import SANDBOX_FOLDER

MAX_PATH_CHARACTERS = 1000
MAX_DEPTH = 100
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # non-blocking: a FIFO must not hang its reader


class PathRefused(Exception):
    """A path cannot be used; the text says why, for the model that named it."""


def split_path(root: Path, path: str) -> tuple[str, ...]:
    """Return the components of a path inside the workspace; none for the workspace itself. Raises PathRefused.

    An absolute path is understood where it begins with the workspace's own folder, as commands see it.
    """
    if "\x00" in path or len(path) > MAX_PATH_CHARACTERS:
        raise PathRefused(f"a path has no NUL characters and at most {MAX_PATH_CHARACTERS} characters")
    inner = path
    for prefix in (SANDBOX_FOLDER, str(root)):
        if path == prefix or path.startswith(f"{prefix}/"):
            inner = path[len(prefix) :].lstrip("/")
            break
    if inner.startswith("/"):
        raise PathRefused(f"{path} is outside the workspace: give a path relative to the workspace's folder")
    parts = tuple(part for part in inner.split("/") if part not in ("", "."))
    if ".." in parts:
        raise PathRefused(f"{path} contains '..': give a path relative to the workspace's folder without it")
    if len(parts) > MAX_DEPTH:
        raise PathRefused(f"a path has at most {MAX_DEPTH} folders")
    return parts


@contextlib.contextmanager
def open_folder(root: Path, parts: tuple[str, ...], create: bool = False) -> Iterator[int]:
    """Yield a descriptor of a folder of the workspace, made where asked. Raises PathRefused."""
    descriptor = os.open(root, _FOLDER)
    try:
        for number, part in enumerate(parts):
            place = "/".join(parts[: number + 1])
            if create:
                with contextlib.suppress(FileExistsError), _explained(place):
                    os.mkdir(part, 0o755, dir_fd=descriptor)
            with _explained(place, descriptor, part):
                inner = os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def open_file(root: Path, parts: tuple[str, ...]) -> Iterator[int]:
    """Yield a descriptor of a regular file, for reading. Raises PathRefused."""
    shown = _shown(parts)
    if not parts:
        raise PathRefused("the path names the workspace's folder, not a file")
    with open_folder(root, parts[:-1]) as folder:
        found = _look(folder, parts[-1])
        if found is None:
            raise PathRefused(f"{shown} does not exist")
        _expect_regular(shown, found)
        with _explained(shown, folder, parts[-1]):
            descriptor = os.open(parts[-1], _FILE, dir_fd=folder)
    try:
        _expect_regular(shown, os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def read_file(root: Path, parts: tuple[str, ...], max_bytes: int) -> bytes:
    """Return the bytes of a regular file. Raises PathRefused, also for more than ``max_bytes``."""
    with open_file(root, parts) as descriptor:
        size = os.fstat(descriptor).st_size
        data = b""
        if size <= max_bytes:
            with os.fdopen(os.dup(descriptor), "rb") as file:
                data = file.read(max_bytes + 1)
    if max(size, len(data)) > max_bytes:
        raise PathRefused(f"{_shown(parts)} has {max(size, len(data)):,} bytes, more than the {max_bytes:,} allowed")
    return data


def write_file(root: Path, parts: tuple[str, ...], data: bytes, incoming: Path) -> bool:
    """Write a regular file as a whole or not at all, its folders too; return whether it is new. Raises PathRefused.

    It is written in ``incoming``, a folder of the same file system outside the workspace, and then moved: no command
    sees half of it, and a crash leaves nothing behind in the workspace.
    """
    shown = _shown(parts)
    if not parts:
        raise PathRefused("the path names the workspace's folder, not a file")
    with open_folder(root, parts[:-1], create=True) as folder:
        before = _look(folder, parts[-1])
        if before is not None:
            _expect_regular(shown, before)
        mode = 0o644 if before is None else stat.S_IMODE(before.st_mode)
        incoming.mkdir(exist_ok=True)
        temporary = incoming / secrets.token_hex(8)
        try:
            with temporary.open("xb") as file:
                file.write(data)
                os.fchmod(file.fileno(), mode)
            with _explained(shown):
                os.replace(temporary, parts[-1], dst_dir_fd=folder)
        finally:
            temporary.unlink(missing_ok=True)
    return before is None


def lookup(root: Path, parts: tuple[str, ...]) -> os.stat_result | None:
    """Return what is there, a link as itself, or None. Raises PathRefused where the way there is none of ours."""
    if not parts:
        return root.stat()
    for number in range(1, len(parts)):
        with open_folder(root, parts[: number - 1]) as folder:
            if _look(folder, parts[number - 1]) is None:
                return None
    with open_folder(root, parts[:-1]) as folder:
        return _look(folder, parts[-1])


def _look(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PathRefused(f"{name}: {error.strerror}") from error


def _expect_regular(shown: str, found: os.stat_result) -> None:
    kinds = {
        stat.S_IFLNK: "a symbolic link, and links are not followed: name the file itself",
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    if not stat.S_ISREG(found.st_mode):
        raise PathRefused(f"{shown} is {kinds.get(stat.S_IFMT(found.st_mode), 'a device')}")


@contextlib.contextmanager
def _explained(shown: str, folder: int | None = None, name: str = "") -> Iterator[None]:
    """Turn the system's error into the sentence that helps whoever named the path."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        found = None if folder is None else _look(folder, name)
        if found is not None and stat.S_ISLNK(found.st_mode):
            raise PathRefused(f"{shown} is a symbolic link, and links are not followed") from error
        if error.errno == errno.ENOTDIR:
            raise PathRefused(f"{shown} is not a folder") from error
        if error.errno == errno.ENOENT:
            raise PathRefused(f"{shown} does not exist") from error
        raise PathRefused(f"{shown}: {error.strerror}") from error


def _shown(parts: tuple[str, ...]) -> str:
    return "/".join(parts)
