"""Files that other processes read: whole or absent, on disk before their name appears."""

import contextlib
import errno
import fcntl
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from schemas.errors import StorageUnavailable

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
REMEDIES = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there, or raise the quota",
    errno.EFBIG: "raise the limit on the size of files",
    errno.EROFS: "make it writable, or name another data folder with SUREFOOT_HOME",
    errno.EACCES: "give this user the right to write there, or name another data folder with SUREFOOT_HOME",
    errno.EPERM: "give this user the right to write there, or name another data folder with SUREFOOT_HOME",
}
"""What to do about a disk, by the system's error number; for every other error it is no use to wait."""

PLENTY_BYTES = 64_000_000


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
    write_all_atomically({path: data})


def write_all_atomically(files: Mapping[Path, bytes]) -> None:
    """Write several files as ``write_atomically`` does, each of them whole or not at all, and all when this returns.

    All are written before the first is synced: a disk that is told once for all has far less to do.
    """
    with _written_beside(files) as temporaries:
        for path, temporary in temporaries.items():
            with _typed(path):
                temporary.replace(path)
        for folder in {path.parent for path in files}:
            with _typed(folder):
                _sync_folder(folder)


def write_once(path: Path, data: bytes, *, private: bool = False) -> bool:
    """Write ``data`` under ``path`` if nothing has that name yet, and return whether it was written.

    Of several processes exactly one gets True. A ``private`` file only its owner may read. Raises StorageUnavailable.
    """
    with _typed(path), _written_beside({path: data}, private) as temporaries:
        try:
            path.hardlink_to(temporaries[path])
        except FileExistsError:
            return False
        _sync_folder(path.parent)
    return True


def make_private(folder: Path) -> None:
    """Make ``folder``, for its owner alone, where there is none; one that is there keeps its rights.

    Raises StorageUnavailable.
    """
    if folder.is_dir():
        return
    with _typed(folder):
        _make_folder(folder.parent)
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        _sync_folder(folder.parent)


def check_room(folder: Path, size_bytes: int) -> None:
    """Raise StorageUnavailable where a file of that size could not be written in ``folder`` now. Leaves nothing."""
    with _typed(folder):
        _make_folder(folder)
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)


def check_own(folders: Iterable[Path]) -> None:
    """Make sure that this user may write in ``folders``, which are made where they are missing.

    Raises StorageUnavailable where one is another user's or read-only. A full disk is none of that: it is waited for.
    """
    for folder in folders:
        try:
            check_room(folder, 1)
        except StorageUnavailable:
            there = next(place for place in (folder, *folder.parents) if place.exists())
            if not os.access(there, os.W_OK | os.X_OK):
                raise


def has_plenty(folder: Path) -> bool:
    """Whether the file system says that ``folder`` can be written and has far more room than any check asks for."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return not found.f_flag & os.ST_RDONLY and found.f_bavail * found.f_frsize >= PLENTY_BYTES


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
def _written_beside(files: Mapping[Path, bytes], private: bool = False) -> Iterator[dict[Path, Path]]:
    """Give a synced temporary file for each path, in its folder, and remove those whose names are there afterwards."""
    temporaries: dict[Path, Path] = {}
    try:
        # held open until synced: a failed write is told to who has it open, and once more when that closes it
        with _typed(next(iter(files))), contextlib.ExitStack() as stack:
            opened: dict[Path, BinaryIO] = {}
            for path, data in files.items():
                with _typed(path):
                    _make_folder(path.parent)
                    temporaries[path] = path.with_name(f".{secrets.token_hex(8)}.tmp")
                    opened[path] = stack.enter_context(temporaries[path].open("xb"))
                    if private:
                        os.fchmod(opened[path].fileno(), PRIVATE_FILE)
                    opened[path].write(data)
                    opened[path].flush()
            for path, file in opened.items():
                with _typed(path):
                    os.fsync(file.fileno())
        yield temporaries
    finally:
        for temporary in temporaries.values():
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
