"""Files that other processes read: whole or absent, on disk before their name appears."""

import contextlib
import errno
import fcntl
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from schemas.errors import StorageUnavailable

REMEDIES = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there, or raise the quota",
    errno.EFBIG: "raise the limit on the size of files",
    errno.EROFS: "make it writable, or name another data folder with SUREFOOT_HOME",
    errno.EACCES: "give this user the right to write there, or name another data folder with SUREFOOT_HOME",
    errno.EPERM: "give this user the right to write there, or name another data folder with SUREFOOT_HOME",
}
"""What to do about a disk, by the system's error number; for every other error it is no use to wait."""


def storage_problem(error: OSError, path: Path | None = None) -> StorageUnavailable | None:
    """Return the typed error where the disk is the reason (what, where, what to do), None for any other error."""
    if error.errno not in REMEDIES:
        return None
    place = path or error.filename or "a file"
    return StorageUnavailable(f"{place} cannot be used: {error.strerror}; {REMEDIES[error.errno]}")


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` under ``path``, replacing what is there: readers see the old content or the new, never a part.

    Raises StorageUnavailable where the disk is full or read-only; what was there is then still there.
    """
    with _typed(path), _written_beside(path, data) as temporary:
        temporary.replace(path)
        _sync_folder(path.parent)


def write_once(path: Path, data: bytes) -> bool:
    """Write ``data`` under ``path`` if nothing has that name yet, and return whether it was written.

    Of several processes exactly one gets True. Raises StorageUnavailable.
    """
    with _typed(path), _written_beside(path, data) as temporary:
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            return False
        _sync_folder(path.parent)
    return True


def check_room(folder: Path, size_bytes: int) -> None:
    """Raise StorageUnavailable where a file of that size could not be written in ``folder`` now. Leaves nothing."""
    with _typed(folder):
        _make_folder(folder)
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)


@contextlib.contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold a lock between processes on the file ``path``; waits for it. It ends with the process that holds it.

    Raises StorageUnavailable where the file cannot be made.
    """
    with _typed(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _typed(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = storage_problem(error, path)
        if problem is None:
            raise
        raise problem from error


@contextlib.contextmanager
def _written_beside(path: Path, data: bytes) -> Iterator[Path]:
    """Give a synced temporary file in the same folder, and remove it if its name is still there afterwards."""
    _make_folder(path.parent)
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
