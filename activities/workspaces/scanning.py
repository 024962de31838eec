"""Scanning a workspace into a manifest: bounded, reading only what may have changed."""

import hashlib
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from activities.workspaces.manifest import Entry, EntryKind, Kept, Manifest, is_text
from activities.workspaces.paths import PathRefused, open_file, open_folder
from activities.workspaces.stopping import Stopped
from activities.workspaces.walking import Found, is_noise, walk
from schemas.base import rebuild
from schemas.digest import sha256_text
from schemas.texts import BlobRef
from stores.artifacts import ArtifactStore

MAX_TEXT_BYTES = 64 * 1024
MAX_HASHED_FILE_BYTES = 64 * 1024 * 1024
MAX_HASHED_BYTES = 2 * 1024 * 1024 * 1024
MAX_KEPT_BYTES = 32 * 1024 * 1024
SETTLED_NS = 2_000_000_000  # a file written this shortly before it was read may change again under the same times
_CHUNK = 1024 * 1024


def scan(root: Path, artifacts: ArtifactStore, before: Manifest | None, stopped: Callable[[], bool]) -> Manifest:
    """Look at every file; what has not changed since ``before`` is not read again. Blocks; raises Stopped."""
    return _Scan(root, before or Manifest(taken_ns=0, entries={}), stopped, artifacts).run()


class _Scan:
    """One look at a workspace, with what it may still read and what it has kept."""

    def __init__(self, root: Path, before: Manifest, stopped: Callable[[], bool], artifacts: ArtifactStore) -> None:
        self._root = root
        self._before = before
        self._stopped = stopped
        self._artifacts = artifacts
        self._bytes_left = MAX_HASHED_BYTES
        self._new_pack = bytearray()

    def run(self) -> Manifest:
        taken_ns = time.time_ns()
        listing = walk(self._root, self._stopped)
        shown = _shown([found.path for found in listing.found], self._artifacts.secrets.mask)
        entries: dict[str, Entry] = {}
        for found in sorted(listing.found, key=_importance):
            if self._stopped():
                raise Stopped
            path = shown[found.path]
            known = self._unchanged(path, found) if path == found.path else None  # a masked one may be another file's
            entries[path] = known or self._entry(path, found)
        packs = self._before.packs
        if self._new_pack:
            packs = (*packs, self._artifacts.put_bytes(bytes(self._new_pack)))
        packs, entries = _without_unused(packs, entries)
        unread = sum(not entry.read for entry in entries.values())
        return Manifest(
            taken_ns=taken_ns,
            entries=dict(sorted(entries.items())),
            packs=packs,
            skipped=listing.skipped + unread,
        )

    def _unchanged(self, path: str, found: Found) -> Entry | None:
        """Return the entry of ``before`` where the file system vouches that it is still true."""
        entry = self._before.entries.get(path)
        if entry is None or not entry.read or entry.kind is not EntryKind.FILE:
            return None
        now = found.stat
        same = (
            found.is_file
            and entry.size_bytes == now.st_size
            and entry.modified_ns == now.st_mtime_ns
            and entry.changed_ns == now.st_ctime_ns
        )
        return entry if same and now.st_ctime_ns < self._before.taken_ns - SETTLED_NS else None

    def _entry(self, path: str, found: Found) -> Entry:
        mode = found.stat.st_mode
        if stat.S_ISREG(mode):
            return self._file(path, found)
        if stat.S_ISLNK(mode):
            return _described(found, EntryKind.LINK, self._target(found))
        kind = EntryKind.FOLDER if stat.S_ISDIR(mode) else EntryKind.OTHER
        return _described(found, kind, kind.value)

    def _file(self, path: str, found: Found) -> Entry:
        size = found.stat.st_size
        unread = _described(found, EntryKind.FILE, f"not read, {size} bytes, {found.stat.st_mtime_ns}", read=False)
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
            kept=None if data is None else self._keep(path, sha256, data),
        )

    def _keep(self, path: str, sha256: str, data: bytes) -> Kept | None:
        entry = self._before.entries.get(path)
        if entry is not None and entry.sha256 == sha256 and entry.kept is not None:
            return entry.kept
        if is_noise(path) or len(self._new_pack) + len(data) > MAX_KEPT_BYTES or not data or not is_text(data):
            return None  # what is never shown need not be kept
        shown = self._artifacts.secrets.mask_bytes(data)
        size = None if len(shown) == len(data) else len(shown)
        kept = Kept(pack=len(self._before.packs), offset=len(self._new_pack), size_bytes=size)
        self._new_pack += shown
        return kept

    def _target(self, found: Found) -> str:
        try:
            with open_folder(self._root, found.parts[:-1]) as folder:
                target = os.readlink(found.parts[-1], dir_fd=folder)
        except (PathRefused, OSError):
            return "unreadable"
        return os.fsencode(target).hex()


def _shown(paths: list[str], mask: Callable[[str], str]) -> dict[str, str]:
    """Return how each path is shown: masked, with a number where another one is masked alike or really called so."""
    masked = {path: mask(path) for path in sorted(paths)}
    taken = {path for path, sign in masked.items() if sign == path}
    for path, sign in masked.items():
        if sign != path:
            number = 1
            while masked[path] in taken:
                number += 1
                masked[path] = f"{sign} ({number})"
            taken.add(masked[path])
    return masked


def _importance(found: Found) -> tuple[bool, int, str]:
    """Noise last, else latest first: where the bounds are reached, what changed last is what has been read and kept."""
    return is_noise(found.path), -found.stat.st_mtime_ns, found.path


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


def _without_unused(
    packs: tuple[BlobRef, ...], entries: dict[str, Entry]
) -> tuple[tuple[BlobRef, ...], dict[str, Entry]]:
    """Leave out the packs that no entry refers to any more, and number the others anew."""
    used = sorted({entry.kept.pack for entry in entries.values() if entry.kept})
    if used == list(range(len(packs))):
        return packs, entries
    numbers = {old: new for new, old in enumerate(used)}
    moved = {
        path: entry if entry.kept is None else rebuild(entry, kept=rebuild(entry.kept, pack=numbers[entry.kept.pack]))
        for path, entry in entries.items()
    }
    return tuple(packs[number] for number in used), moved


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
