"""The base of every schema: frozen, strict, nothing unknown, nothing infinite."""

import json
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

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


AS_ROWS = "rows"
"""Context of a serialization that writes each ``Row`` as a list."""


class Row(Frozen):
    """A small value of which a history holds thousands.

    Between workers it is the list of its fields in their order, without those at its end that have their default;
    everywhere else it is an object with names. Both are read. A new field goes to the end and has a default. All fields
    are texts, numbers and rows: what is inside is plain Python when it is checked, where no list counts as a tuple.
    """

    @model_serializer(mode="wrap")
    def _written(self, named: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
        if info.context != AS_ROWS:
            return named(self)
        fields = type(self).model_fields
        values = [getattr(self, name) for name in fields]
        defaults = [field.default for field in fields.values()]
        while values and values[-1] == defaults[len(values) - 1]:
            values.pop()
        return values

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        if len(value) > len(cls.model_fields):
            raise ValueError(f"{len(value)} values, where there are {len(cls.model_fields)} fields")
        return dict(zip(cls.model_fields, value, strict=False))


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
