"""Canonical digests: the same request always has the same SHA-256."""

import hashlib
import json
from collections.abc import Mapping

import rfc8785
from pydantic import BaseModel


def sha256_text(text: str) -> str:
    """Return the SHA-256 of the UTF-8 bytes, as 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_model(model: BaseModel, exclude: set[str] | None = None) -> str:
    """Return the SHA-256 of a schema's canonical JSON (sorted keys, no spaces), ``exclude``d fields left out."""
    data = model.model_dump(mode="json", exclude=exclude)
    return sha256_text(json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def digest_envelope(fields: Mapping[str, str]) -> str:
    """Return the SHA-256 of an RFC 8785 envelope of strings.

    Only strings: RFC 8785 numbers are IEEE doubles and lose integers beyond 2^53.
    """
    return hashlib.sha256(rfc8785.dumps(dict(fields))).hexdigest()
