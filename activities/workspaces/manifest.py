"""The manifest: every file of a workspace with its digest, and the contents of the small texts kept as artifacts."""

import hashlib
import os
import stat
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from pydantic import Field

from activities.workspaces.paths import PathRefused, open_file, open_folder
from activities.workspaces.stopping import Stopped
from activities.workspaces.walking import Found, walk
from schemas.base import Count, Frozen, Sha256
from schemas.digest import sha256_text
from schemas.texts import BlobRef
from stores.artifacts import ArtifactStore

MAX_TEXT_BYTES = 64 * 1024
MAX_HASHED_FILE_BYTES = 64 * 1024 * 1024
MAX_HASHED_BYTES = 2 * 1024 * 1024 * 1024
MAX_KEPT_FILES = 2000
SETTLED_NS = 2_000_000_000  # a file written this shortly before it was read may change again under the same times
_CHUNK = 1024 * 1024


class EntryKind(StrEnum):
    """What an entry is."""

    FILE = "file"
    LINK = "link"
    FOLDER = "folder"
    """An empty one; others show in their files."""
    OTHER = "other"


class Entry(Frozen):
    """One file as it was found."""

    kind: EntryKind
    """What it is."""
    size_bytes: Count
    """Length in bytes."""
    sha256: Sha256
    """Digest of the content; for a link of its target; for an unread file of its size and time."""
    mode: Count
    """Permission bits."""
    modified_ns: int
    """Time of the last write, nanoseconds since 1970."""
    changed_ns: int
    """Time of the last change of content or mode: unlike the other, no program can set it."""
    read: bool = True
    """False for a file beyond the bounds, whose content was not read."""
    kept: bool = False
    """Whether it is a small text whose content is in the artifact store under its digest."""


class Manifest(Frozen):
    """All files at one point in time."""

    taken_ns: int
    """When the scan began, by the clock that the file system uses."""
    entries: dict[str, Entry] = Field(max_length=1_000_000)
    """Path as shown → entry."""
    skipped: Count = 0
    """Files beyond the bounds: not listed, or listed and not read."""

    @property
    def fingerprint(self) -> str:
        """Digest of paths, kinds, modes and contents; times are not part of it."""
        lines = [f"{path}\x00{e.kind}\x00{e.mode:o}\x00{e.sha256}" for path, e in sorted(self.entries.items())]
        return sha256_text("\n".join(lines))


def load_manifest(ref: BlobRef, artifacts: ArtifactStore) -> Manifest:
    """Return a stored manifest. Raises ArtifactMissing."""
    return Manifest.model_validate_json(artifacts.get_bytes(ref))


def save_manifest(manifest: Manifest, artifacts: ArtifactStore) -> BlobRef:
    """Store a manifest."""
    return artifacts.put_bytes(manifest.model_dump_json().encode())


def kept_text(entry: Entry | None, artifacts: ArtifactStore) -> str | None:
    """Return the content of an entry whose text was kept, or None."""
    if entry is None or not entry.kept:
        return None
    return artifacts.get_bytes(BlobRef(sha256=entry.sha256, size_bytes=entry.size_bytes)).decode()


def scan(root: Path, artifacts: ArtifactStore, before: Manifest | None, stopped: Callable[[], bool]) -> Manifest:
    """Look at every file; what has not changed since ``before`` is not read again. Blocks; raises Stopped."""
    return _Scan(root, artifacts, before, stopped).run()


class _Scan:
    """One look at a workspace, with what it may still read and keep."""

    def __init__(
        self, root: Path, artifacts: ArtifactStore, before: Manifest | None, stopped: Callable[[], bool]
    ) -> None:
        self._root = root
        self._artifacts = artifacts
        self._before = before
        self._stopped = stopped
        self._bytes_left = MAX_HASHED_BYTES
        self._keep_left = MAX_KEPT_FILES

    def run(self) -> Manifest:
        taken_ns = time.time_ns()
        listing = walk(self._root, self._stopped)
        entries: dict[str, Entry] = {}
        # latest first: where the bounds are reached, what changed last is what has been read and kept
        for found in sorted(listing.found, key=lambda found: (-found.stat.st_mtime_ns, found.path)):
            if self._stopped():
                raise Stopped
            entries[found.path] = self._unchanged(found) or self._entry(found)
        unread = sum(not entry.read for entry in entries.values())
        return Manifest(taken_ns=taken_ns, entries=dict(sorted(entries.items())), skipped=listing.skipped + unread)

    def _unchanged(self, found: Found) -> Entry | None:
        """Return the entry of ``before`` where the file system vouches that it is still true."""
        entry = self._before.entries.get(found.path) if self._before else None
        if self._before is None or entry is None or not entry.read or entry.kind is not EntryKind.FILE:
            return None
        now = found.stat
        same = (
            found.is_file
            and entry.size_bytes == now.st_size
            and entry.modified_ns == now.st_mtime_ns
            and entry.changed_ns == now.st_ctime_ns
        )
        return entry if same and now.st_ctime_ns < self._before.taken_ns - SETTLED_NS else None

    def _entry(self, found: Found) -> Entry:
        mode = found.stat.st_mode
        if stat.S_ISREG(mode):
            return self._file(found)
        if stat.S_ISLNK(mode):
            return self._described(found, EntryKind.LINK, self._target(found))
        kind = EntryKind.FOLDER if stat.S_ISDIR(mode) else EntryKind.OTHER
        return self._described(found, kind, kind.value)

    def _file(self, found: Found) -> Entry:
        size = found.stat.st_size
        unread = self._described(found, EntryKind.FILE, f"not read, {size} bytes, {found.stat.st_mtime_ns}", read=False)
        if size > min(MAX_HASHED_FILE_BYTES, self._bytes_left):
            return unread
        try:
            with open_file(self._root, found.parts) as descriptor:
                sha256, data = _digest(descriptor)
                now = os.fstat(descriptor)
        except (PathRefused, OSError):  # gone, replaced, or not ours to read
            return unread
        self._bytes_left -= now.st_size
        return Entry(
            kind=EntryKind.FILE,
            size_bytes=now.st_size if data is None else len(data),
            sha256=sha256,
            mode=stat.S_IMODE(now.st_mode),
            modified_ns=now.st_mtime_ns,
            changed_ns=now.st_ctime_ns,
            kept=data is not None and self._keep(data),
        )

    def _keep(self, data: bytes) -> bool:
        if self._keep_left <= 0 or not is_text(data):
            return False
        self._keep_left -= 1
        self._artifacts.put_bytes(data)
        return True

    def _target(self, found: Found) -> str:
        try:
            with open_folder(self._root, found.parts[:-1]) as folder:
                target = os.readlink(found.parts[-1], dir_fd=folder)
        except (PathRefused, OSError):
            return "unreadable"
        return os.fsencode(target).hex()

    @staticmethod
    def _described(found: Found, kind: EntryKind, content: str, read: bool = True) -> Entry:
        return Entry(
            kind=kind,
            size_bytes=found.stat.st_size if kind is EntryKind.FILE else 0,
            sha256=sha256_text(content),
            mode=stat.S_IMODE(found.stat.st_mode),
            modified_ns=found.stat.st_mtime_ns,
            changed_ns=found.stat.st_ctime_ns,
            read=read,
        )


def is_text(data: bytes) -> bool:
    """Whether bytes are UTF-8 without NUL."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\x00" not in data


def _digest(descriptor: int) -> tuple[str, bytes | None]:
    """Return the digest of a file, and its content where it is small."""
    digest = hashlib.sha256()
    data = b""
    total = 0
    with os.fdopen(os.dup(descriptor), "rb") as file:
        while (chunk := file.read(_CHUNK)) and total <= MAX_HASHED_FILE_BYTES:
            digest.update(chunk)
            total += len(chunk)
            data = data + chunk if total <= MAX_TEXT_BYTES else b""
    return digest.hexdigest(), data if total <= MAX_TEXT_BYTES else None
