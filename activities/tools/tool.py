"""What a tool is: arguments, an executor, an effect class, and how to tell whether it has happened."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pydantic import BaseModel

from schemas.actions import ObservationStatus
from schemas.effects import EffectClass, ProcessGroup
from schemas.workspace import WorkspaceRef
from stores.secrets import Secrets

Arguments = TypeVar("Arguments", bound=BaseModel)


class Claim(Protocol):
    """Makes sure, right before a tool acts, that this attempt may act; raises Fenced where it may not."""

    async def __call__(self, *, process: ProcessGroup | None = None, marker: Mapping[str, str] | None = None) -> None:
        """Record what a reconciler would need, the owner of the process or the state before, and confirm the claim."""


@dataclass(frozen=True)
class ToolContext:
    """What a tool needs beside its arguments; none of it is the model's to choose."""

    workspace: WorkspaceRef
    root: Path
    """The workspace's folder."""
    incoming: Path
    """Folder of the same file system outside the workspace, for files on their way in."""
    timeout_seconds: int
    """Longest run time."""
    stop: asyncio.Event
    """Set when the action is to end early."""
    claim: Claim
    """Awaited exactly once, right before acting; a tool that returns without it has done nothing."""
    secrets: Secrets
    """Resolves the workspace's secrets. A tool masks what it cuts before it cuts; the rest is masked for it."""


@dataclass(frozen=True)
class ToolResult:
    """What a tool gives back."""

    status: ObservationStatus
    summary: str
    """What happened, in a line."""
    text: str = ""
    """The whole output."""
    exit_code: int | None = None


@dataclass(frozen=True)
class Tool(Generic[Arguments]):
    """One tool."""

    name: str
    description: str
    """For the model: what it does, what it gives back, what it does not do."""
    arguments: type[Arguments]
    execute: Callable[[Arguments, ToolContext], Awaitable[ToolResult]]
    preview: Callable[[Arguments], str]
    """The arguments in a line, for people."""
    effect_class: EffectClass
    irreversible: bool = False
    happened: Callable[[Arguments, Path, Mapping[str, str]], bool | None] | None = None
    """For a reconcilable tool: whether it has happened, judged by what it noted before acting; None for nobody knows.
    Blocks."""


def succeeded(summary: str, text: str = "") -> ToolResult:
    """Return the result of a tool that did what was asked."""
    return ToolResult(ObservationStatus.SUCCEEDED, summary, text)


def failed(summary: str, text: str = "") -> ToolResult:
    """Return the result of a tool that could not do what was asked; the summary tells the model what to change."""
    return ToolResult(ObservationStatus.FAILED, summary, text)
