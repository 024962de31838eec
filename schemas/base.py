"""The base of every schema: frozen, strict, nothing unknown, nothing infinite."""

import json
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Model = TypeVar("Model", bound=BaseModel)

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
MicroUsd = Annotated[int, Field(ge=0, le=2**53 - 1)]
Line = Annotated[str, Field(max_length=500)]


class Frozen(BaseModel):
    """A value: it cannot change, coerces nothing, and refuses fields it does not know."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=True,
        use_attribute_docstrings=True,
    )


def rebuild(model: Model, /, **changes: Any) -> Model:
    """Return a copy of ``model`` with ``changes``, validated as a whole.

    ``model_copy(update=...)`` validates nothing, unknown fields included; this is the one way state changes.
    """
    current = {name: getattr(model, name) for name in type(model).model_fields}
    return type(model).model_validate({**current, **changes})


def json_bytes(text: str) -> int:
    """Return the length of ``text`` in JSON: up to six times its own where it holds control characters."""
    return len(json.dumps(text, ensure_ascii=False).encode())


def counted(number: int, thing: str) -> str:
    """Return a number with its noun, as ``1 file`` or ``2,000 files``."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def clip(text: str, limit: int = 500) -> str:
    """Return ``text`` in at most ``limit`` characters, with the cut marked."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
