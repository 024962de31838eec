"""The manifest: every file of a workspace with its digest, and where the contents of small texts are kept."""

from enum import StrEnum

from pydantic import Field

from schemas.base import Count, Frozen, Sha256
from schemas.digest import sha256_text
from schemas.texts import BlobRef
from stores.artifacts import ArtifactStore


class EntryKind(StrEnum):
    """What an entry is."""

    FILE = "file"
    LINK = "link"
    FOLDER = "folder"
    """An empty one; others show in their files."""
    OTHER = "other"


class Kept(Frozen):
    """Where the content of a small text is."""

    pack: Count
    """Index of the pack among the manifest's."""
    offset: Count
    """First byte in the pack."""
    size_bytes: Count | None = None
    """Length in the pack, where masking has changed it."""


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
    kept: Kept | None = None
    """Where its content is, for a small text."""


class Manifest(Frozen):
    """All files at one point in time."""

    taken_ns: int
    """When the scan began, by the clock that the file system uses."""
    entries: dict[str, Entry] = Field(max_length=1_000_000)
    """Path as shown → entry."""
    packs: tuple[BlobRef, ...] = ()
    """Contents of small texts, one after the other: one artifact for each scan that found new ones."""
    skipped: Count = 0
    """Files beyond the bounds: not listed, or listed and not read."""

    @property
    def fingerprint(self) -> str:
        """Digest of paths, kinds, modes and contents; times are not part of it."""
        lines = [f"{path}\x00{e.kind}\x00{e.mode:o}\x00{e.sha256}" for path, e in sorted(self.entries.items())]
        return sha256_text("\n".join(lines))

    @property
    def files(self) -> int:
        """Number of files, empty folders not counted."""
        return sum(entry.kind is not EntryKind.FOLDER for entry in self.entries.values())


class Texts:
    """The kept texts of one manifest."""

    def __init__(self, manifest: Manifest, artifacts: ArtifactStore) -> None:
        """Read packs from ``artifacts`` as they are asked for."""
        self._manifest = manifest
        self._artifacts = artifacts
        self._packs: dict[int, bytes] = {}

    def of(self, path: str) -> str | None:
        """Return the text of a file, or None where it was not kept. Raises ArtifactMissing."""
        entry = self._manifest.entries.get(path)
        if entry is None or entry.kept is None:
            return "" if entry is not None and entry.kind is EntryKind.FILE and not entry.size_bytes else None
        number, first = entry.kept.pack, entry.kept.offset
        size = entry.size_bytes if entry.kept.size_bytes is None else entry.kept.size_bytes
        if number not in self._packs:
            self._packs[number] = self._artifacts.get_bytes(self._manifest.packs[number])
        return self._packs[number][first : first + size].decode()


def load_manifest(ref: BlobRef, artifacts: ArtifactStore) -> Manifest:
    """Return a stored manifest. Raises ArtifactMissing."""
    return Manifest.model_validate_json(artifacts.get_bytes(ref))


def save_manifest(manifest: Manifest, artifacts: ArtifactStore) -> BlobRef:
    """Store a manifest."""
    return artifacts.put_bytes(manifest.model_dump_json(exclude_defaults=True).encode())


def is_text(data: bytes) -> bool:
    """Whether bytes are UTF-8 without NUL."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\x00" not in data
