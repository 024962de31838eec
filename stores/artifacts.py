"""The artifact store: texts and blobs on disk under their SHA-256."""

import contextlib
import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from schemas.errors import ArtifactMissing, PayloadTooLarge, StorageUnavailable
from schemas.texts import BlobRef, TextRef, estimate_tokens
from stores.files import check_room, has_plenty, make_private, write_all_atomically
from stores.secrets import Secrets

MAX_ARTIFACT_BYTES = 256 * 1024 * 1024
ROOM_BYTES = 1_000_000
"""What must be free before something is paid for or done whose result is kept here."""
ROOM_SECONDS = 1.0
"""How long it counts that there was room, on a disk that says it has plenty."""
PATIENCE_SECONDS = 40.0
"""How long such a result waits for room in a worker; the ledger's patience may follow within the same attempt."""
RETRY_SECONDS = 0.5
_NAME = re.compile(r"[0-9a-f]{64}")


class ArtifactStore:
    """Content-addressed files ``<root>/<first two hex digits>/<sha256>``; many processes may use one folder at once.

    What was put is on disk when ``put_*`` returns. The same content is stored once. What is read is checked against
    its name, so a damaged file is never taken for the artifact.

    Texts are masked before they are stored. Bytes are not: who puts some from the world masks them with ``secrets``.
    """

    def __init__(
        self,
        root: Path,
        max_bytes: int = MAX_ARTIFACT_BYTES,
        secrets: Secrets | None = None,
        patience_seconds: float = 0.0,
    ) -> None:
        """Use the folder ``root``, which is made when something is put; refuse artifacts of more than ``max_bytes``.

        ``patience_seconds`` is how long ``together(patient=True)`` waits for a disk.
        """
        self.root = root
        self.secrets = secrets or Secrets()
        self._max_bytes = max_bytes
        self._patience_seconds = patience_seconds
        self._room_until = 0.0

    def path(self, sha256: str) -> Path:
        """Return where the artifact of that hash is, or would be."""
        return self.root / sha256[:2] / sha256

    def put_text(self, text: str) -> TextRef:
        """Store ``text``, masked, as UTF-8 and return its reference. Raises PayloadTooLarge.

        Lone surrogates, which UTF-8 cannot hold, become ``?``.
        """
        data = self.secrets.mask(text).encode("utf-8", "replace")
        blob = self.put_bytes(data)
        return TextRef(sha256=blob.sha256, size_bytes=blob.size_bytes, tokens=estimate_tokens(data.decode()))

    def check_room(self) -> None:
        """Raise StorageUnavailable where a result could not be kept now: what makes it should not begin.

        A quota shows only where something is written, which may take milliseconds: on a disk that has plenty, that is
        done once a second.
        """
        now = time.monotonic()
        if now < self._room_until and has_plenty(self.root):
            return
        make_private(self.root.parent)
        check_room(self.root, ROOM_BYTES)
        self._room_until = now + ROOM_SECONDS

    def put_bytes(self, data: bytes) -> BlobRef:
        """Store ``data`` and return its reference. Raises PayloadTooLarge."""
        if len(data) > self._max_bytes:
            raise PayloadTooLarge(f"an artifact of {len(data):,} bytes is more than {self._max_bytes:,}")
        ref = BlobRef(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
        self._keep(ref.sha256, data)
        return ref

    @contextlib.contextmanager
    def together(self, *, patient: bool = False) -> Iterator["ArtifactStore"]:
        """Give a store that puts all its artifacts at once when the block ends, which the disk takes in far less time.

        Until then only it can read them. Where the block raises nothing is put. For one thread. ``patient`` is for what
        was paid for or done and cannot be had again: a full disk is waited for, and StorageUnavailable raised only once
        the patience is over.
        """
        later = _Later(self.root, self._max_bytes, self.secrets)
        yield later
        deadline = time.monotonic() + (self._patience_seconds if patient else 0.0)
        while True:
            try:
                return self._write(later.held)
            except StorageUnavailable:
                if time.monotonic() + RETRY_SECONDS > deadline:
                    raise
            time.sleep(RETRY_SECONDS)

    def _keep(self, sha256: str, data: bytes) -> None:
        self._write({sha256: data})

    def _write(self, contents: Mapping[str, bytes]) -> None:
        files = {self.path(sha256): data for sha256, data in contents.items()}
        missing = {path: data for path, data in files.items() if not (_holds(path, data) and _made_young(path))}
        if missing:
            make_private(self.root.parent)  # the data folder, if nothing has made it yet
            write_all_atomically(missing)

    def get_text(self, ref: TextRef) -> str:
        """Return the text. Raises ArtifactMissing, also where the file is damaged."""
        return self.get_bytes(ref).decode()

    def get_bytes(self, ref: BlobRef | TextRef) -> bytes:
        """Return the bytes. Raises ArtifactMissing, also where the file is damaged."""
        sha256 = ref.sha256
        path = self.path(sha256)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise ArtifactMissing(f"no artifact sha256:{sha256} in {self.root}") from None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise ArtifactMissing(f"the artifact sha256:{sha256} is damaged: {path} has other content")
        return data

    def names(self) -> frozenset[str]:
        """Return the SHA-256 of every artifact in the store."""
        return frozenset(path.name for path in self.root.glob("[0-9a-f][0-9a-f]/*") if _NAME.fullmatch(path.name))

    def remove(self, sha256: str, put_before: float) -> int:
        """Remove an artifact that was last put before ``put_before`` (seconds since the epoch); return its bytes.

        Nothing is removed, and 0 returned, where it was put since, also if that happens at this very moment.
        """
        path = self.path(sha256)
        aside = path.with_name(f".{secrets.token_hex(8)}.removed")
        try:
            if path.stat().st_mtime >= put_before:
                return 0
            path.rename(aside)  # whoever puts it from here on finds nothing and writes it anew
            found = aside.stat()
            if found.st_mtime >= put_before:  # put between our two looks: back to its place
                aside.rename(path)
                return 0
        except FileNotFoundError:  # somebody else collects, too
            return 0
        aside.unlink(missing_ok=True)
        return found.st_size


class _Later(ArtifactStore):
    """A store that holds what is put until it is written: see ``ArtifactStore.together``."""

    def __init__(self, root: Path, max_bytes: int, secrets: Secrets) -> None:
        super().__init__(root, max_bytes, secrets)
        self.held: dict[str, bytes] = {}

    def get_bytes(self, ref: BlobRef | TextRef) -> bytes:
        held = self.held.get(ref.sha256)
        return super().get_bytes(ref) if held is None else held

    def _keep(self, sha256: str, data: bytes) -> None:
        self.held[sha256] = data


def _made_young(path: Path) -> bool:
    """Note that the artifact was put now, and return whether it is still there: see ``ArtifactStore.remove``."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _holds(path: Path, data: bytes) -> bool:
    """Whether the file is there and whole; a damaged one is written anew."""
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
        return False
