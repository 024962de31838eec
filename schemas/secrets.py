"""Named secrets: a task says which it needs, a worker's settings say where each value comes from."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from schemas.base import Frozen

_TAKEN = frozenset({"PATH", "HOME", "LANG", "ENV", "IFS", "SHELL", "USER", "LOGNAME", "TMPDIR", "TZ"})
_TAKEN_BEGINNINGS = ("LD_", "LC_", "PYTHON")


def _free(name: str) -> str:
    if name in _TAKEN or name.startswith(_TAKEN_BEGINNINGS):
        raise ValueError(f"{name} means something to programs already; choose another name")
    return name


SecretName = Annotated[str, Field(max_length=100, pattern=r"^[A-Z][A-Z0-9_]*$"), AfterValidator(_free)]
"""A secret's name, which is also the environment variable that commands find it in."""


def _once_each(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError("each secret may be named once")
    return names


SecretNames = Annotated[tuple[SecretName, ...], Field(max_length=20), AfterValidator(_once_each)]


class SecretSource(Frozen):
    """Where a worker finds a secret's value, anew at every use: exactly one of ``env``, ``file`` and ``command``."""

    env: Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """Environment variable of the worker."""
    file: Annotated[str, Field(max_length=1000, pattern=r"^/")] | None = None
    """Absolute path of a file that holds nothing else; a line end at its end does not count."""
    command: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] | None = None
    """Program and arguments, run without a shell; what it prints is the value, but for a line end at its end."""
    timeout_seconds: Annotated[int, Field(ge=1, le=60)] = 10
    """Longest run time of ``command``."""

    @model_validator(mode="after")
    def _is_one_source(self) -> Self:
        if sum(source is not None for source in (self.env, self.file, self.command)) != 1:
            raise ValueError("needs exactly one of env, file and command")
        return self
