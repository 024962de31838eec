"""Files that other processes read: whole or absent, on disk before their name appears."""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` under ``path``, replacing what is there: readers see the old content or the new, never a part."""
    with _written_beside(path, data) as temporary:
        temporary.replace(path)
    _sync_folder(path.parent)


def write_once(path: Path, data: bytes) -> bool:
    """Write ``data`` under ``path`` if nothing has that name yet, and return whether it was written.

    Of several processes exactly one gets True.
    """
    with _written_beside(path, data) as temporary:
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            return False
    _sync_folder(path.parent)
    return True


@contextlib.contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold a lock between processes on the file ``path``; waits for it. It ends with the process that holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
