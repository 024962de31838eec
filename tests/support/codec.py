"""A payload codec that hides what it is given, as an encrypting one of somebody's does."""

import hashlib
from collections.abc import Sequence

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

ENCODING = "binary/encrypted"


class Encrypting(PayloadCodec):
    """Encrypts whole payloads with a key stream; it keeps no secret, but nobody finds anything in what it gives."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        encoding = {"encoding": ENCODING.encode()}
        return [Payload(metadata=encoding, data=_xor(payload.SerializeToString())) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload.FromString(_xor(payload.data)) for payload in payloads]


def _xor(data: bytes) -> bytes:
    blocks = range(0, len(data), 32)
    stream = b"".join(hashlib.sha256(f"key {block}".encode()).digest() for block in blocks)
    return bytes(a ^ b for a, b in zip(data, stream, strict=False))
