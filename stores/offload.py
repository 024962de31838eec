"""Payloads that are too big for history: kept in the artifact store, with a claim in their place.

Temporal's SDK exchanges claims for payloads before any code of a workflow runs, so a claim that cannot be honoured
would keep the run waiting for ever, whoever sent it. Our own claims are signed with a key of the store. One that is not
is handed on as a payload that nothing decodes, and refused where it arrives. One that is, and whose artifact is not
there, waits: the store will be back.
"""

import asyncio
import functools
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from pathlib import Path

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    DataConverter,
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverSelectContext,
    StorageDriverStoreContext,
)
from temporalio.exceptions import ApplicationError

from schemas.errors import ArtifactMissing, PayloadTooLarge
from schemas.texts import BlobRef
from stores.artifacts import ArtifactStore
from stores.files import write_once
from stores.payloads import RECORD_MARK

THRESHOLD_BYTES = 256 * 1000
RECORD_BYTES = 4 * 1000
"""From here on a run's own record is kept outside of its history."""
KEY_FILE = "claims.key"
"""In the folder of an artifact store: what signs its claims, and tells it from other stores."""
KEY_BYTES = 32
REFUSED = Payload(metadata={"encoding": b"surefoot/refused-claim"})
"""Stands for a claim that is not ours; no converter knows its encoding."""


class ArtifactDriver(StorageDriver):
    """Keeps payloads in the artifact store. The claim holds hash, size and signature, no secret."""

    def __init__(self, artifacts: ArtifactStore) -> None:
        """Use ``artifacts``; workers and replayers must see the same store."""
        self._artifacts = artifacts

    def name(self) -> str:
        """Return the name that histories refer to; it never changes."""
        return "surefoot.artifacts"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Store each payload as it would have gone to the server, encoded by the codec."""
        return [await asyncio.to_thread(self._store, payload) for payload in payloads]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """Return the payloads, REFUSED for a claim that is not ours.

        Raises ArtifactMissing: a workflow task then waits until the store is back.
        """
        return [await asyncio.to_thread(self._retrieve, claim) for claim in claims]

    def _store(self, payload: Payload) -> StorageDriverClaim:
        try:
            ref = self._artifacts.put_bytes(payload.SerializeToString(deterministic=True))
        except PayloadTooLarge as error:
            # raised while a result is encoded, where no code of ours translates it; untyped it would be retried
            raise ApplicationError(str(error), type=PayloadTooLarge.__name__, non_retryable=True) from error
        return StorageDriverClaim(claim_data={**_named(ref), "signature": self._signature(ref)})

    def _retrieve(self, claim: StorageDriverClaim) -> Payload:
        try:
            ref = BlobRef(sha256=claim.claim_data["sha256"], size_bytes=int(claim.claim_data["size_bytes"]))
            signature = claim.claim_data["signature"]
        except (KeyError, ValueError):
            return REFUSED
        if not hmac.compare_digest(self._signature(ref).encode(), signature.encode("utf-8", "replace")):
            return REFUSED
        return Payload.FromString(self._artifacts.get_bytes(ref))

    def _signature(self, ref: BlobRef) -> str:
        return hmac.new(self._key, f"{ref.sha256}:{ref.size_bytes}".encode(), hashlib.sha256).hexdigest()

    @functools.cached_property
    def _key(self) -> bytes:
        return signing_key(self._artifacts.root)


def signing_key(root: Path) -> bytes:
    """Return the key that signs the claims of the store at ``root``, made when it is first wanted.

    Raises ArtifactMissing where there is no store: what looks like one without a key is not there, rather than new.
    """
    path = root / KEY_FILE
    if not path.exists():
        if not root.is_dir() or not any(root.iterdir()):
            raise ArtifactMissing(f"no artifact store in {root}")
        write_once(path, secrets.token_bytes(KEY_BYTES), private=True)  # who can read it can sign claims
    return path.read_bytes()


def artifact_storage(artifacts: ArtifactStore) -> "SignedStorage":
    """Return the storage that keeps big payloads, and what a run puts down of itself, in ``artifacts``."""
    driver = ArtifactDriver(artifacts)

    def choose(_: StorageDriverSelectContext, payload: Payload) -> StorageDriver | None:
        return driver if RECORD_MARK in payload.metadata or payload.ByteSize() >= THRESHOLD_BYTES else None

    return SignedStorage(drivers=[driver], driver_selector=choose, payload_size_threshold=RECORD_BYTES)


class SignedConverter(DataConverter):
    """Temporal's converter, but what says that it is a reference and is none is REFUSED instead of an error.

    The SDK (1.35) has no public seam between a reference and its driver, so methods of its own are overridden here and
    in SignedStorage; a test sends references with foreign drivers and broken bodies, and fails where an update no
    longer calls them.
    """

    async def _decode_reference_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [await self._decoded_reference(payload) for payload in payloads]

    async def _decoded_reference(self, payload: Payload) -> Payload:
        try:
            return (await super()._decode_reference_payload_sequence([payload]))[0]
        except RuntimeError:
            return REFUSED


class SignedStorage(ExternalStorage):
    """Temporal's external storage, but what is no reference of ours is REFUSED instead of an error."""

    async def _retrieve_payload(self, payload: Payload) -> Payload:
        try:
            self._known(payload)
        except (AttributeError, RuntimeError, TypeError, ValueError):
            return REFUSED
        return await super()._retrieve_payload(payload)

    async def _retrieve_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(await asyncio.gather(*(self._retrieve_payload(payload) for payload in payloads)))

    def _known(self, payload: Payload) -> None:
        """Raise what the SDK raises where ``payload`` is a reference that it cannot read or has no driver for."""
        reference = self._decode_reference(payload)
        if reference is not None:
            self._get_driver_by_name(reference.driver_name)
            dict(reference.claim_data)


def _named(ref: BlobRef) -> dict[str, str]:
    return {"sha256": ref.sha256, "size_bytes": str(ref.size_bytes)}
