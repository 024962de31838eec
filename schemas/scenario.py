"""The scenario file: a task as its author writes it, before tiers, prices and files are resolved.

``TaskSpec`` is what becomes of it at submit. Money is written in dollars here and becomes whole micro-dollars there.
"""

import re
from decimal import Decimal
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from schemas.base import Frozen
from schemas.budget import LimitCount, Limits
from schemas.checks import Check, CommandCheck, DirectoryCheck, FileCheck, JsonCheck, Requirement
from schemas.models import Tier
from schemas.pricing import Price
from schemas.secrets import SecretNames
from schemas.task import Bounds
from schemas.workspace import FileText, WorkspaceKind, WorkspaceLimits

MICROUSD_PER_USD = 1_000_000

Usd = Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=6)]
FilePath = Annotated[str, Field(min_length=1, max_length=1000)]


def micro(usd: Decimal) -> int:
    """Return ``usd`` in whole micro-dollars; exact, since a scenario allows six decimals."""
    return int(usd * MICROUSD_PER_USD)


def _inside(path: str) -> str:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or "\0" in path or str(parts) == ".":
        raise ValueError("must be a relative path inside the workspace, without '..'")
    return path


def _measurable(check: Any) -> Any:
    """Refuse a check that could never run: a path that leaves the workspace, a pattern that does not compile."""
    if isinstance(check, FileCheck | JsonCheck):
        _inside(check.path)
    if isinstance(check, FileCheck) and check.matches is not None:
        try:
            re.compile(check.matches)
        except re.error as error:
            raise ValueError(f"matches is not a regular expression: {error}") from error
    if isinstance(check, FileCheck) and not check.exists and _asks_for_text(check):
        raise ValueError("exists: false looks at nothing else; drop contains, lacks, matches and equals")
    if isinstance(check, DirectoryCheck) and not (check.only_changed is not None or check.unchanged or check.created):
        raise ValueError("a directory check needs only_changed, unchanged or created")
    if isinstance(check, CommandCheck) and not check.run.strip():
        raise ValueError("run is blank")
    return check


def _asks_for_text(check: FileCheck) -> bool:
    return any(value is not None for value in (check.contains, check.lacks, check.matches, check.equals))


def _measurable_requirement(requirement: Requirement) -> Requirement:
    _measurable(requirement.check)
    return requirement


def _can_finish(requirements: tuple[Requirement, ...]) -> tuple[Requirement, ...]:
    ids = [requirement.id for requirement in requirements]
    doubled = sorted({name for name in ids if ids.count(name) > 1})
    if doubled:
        raise ValueError(f"requirement ids must differ; used twice: {', '.join(doubled)}")
    if not any(requirement.mandatory for requirement in requirements):
        raise ValueError("at least one requirement must be mandatory: without one nothing could finish the task")
    return requirements


def _once_each(tools: tuple["ToolName", ...]) -> tuple["ToolName", ...]:
    if len(set(tools)) != len(tools):
        raise ValueError("each tool may be named once")
    return tools


class ToolName(StrEnum):
    """Tools that a task may use."""

    RUN = "run"
    READ_FILE = "read_file"
    WRITE_FILE = "write_file"
    EDIT_FILE = "edit_file"
    LIST_FILES = "list_files"
    SEARCH_FILES = "search_files"


class UsdPrice(Frozen):
    """What a model costs, in US dollars per million tokens."""

    input_usd_per_mtok: Usd
    """Uncached input."""
    output_usd_per_mtok: Usd
    """Output, reasoning included."""
    cached_input_usd_per_mtok: Usd | None = None
    """Input read from the provider's cache; the input price where it is left out."""
    cache_write_usd_per_mtok: Usd | None = None
    """Input written to the provider's cache; the input price where it is left out."""

    def frozen_price(self) -> Price:
        """Return the price in micro-dollars per million tokens, as a run keeps it."""
        cached, written = self.cached_input_usd_per_mtok, self.cache_write_usd_per_mtok
        return Price(
            input_microusd_per_mtok=micro(self.input_usd_per_mtok),
            output_microusd_per_mtok=micro(self.output_usd_per_mtok),
            cached_input_microusd_per_mtok=None if cached is None else micro(cached),
            cache_write_microusd_per_mtok=None if written is None else micro(written),
        )


class ModelEntry(Frozen):
    """A model with what a request to it needs."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    """A LiteLLM model string, as ``openai/gpt-4.1``, or ``rehearsed``."""
    api_base: Annotated[str, Field(min_length=1, max_length=500, pattern=r"^https?://")] | None = None
    """Address of an OpenAI-compatible service, where it is not the provider's own."""
    api_key_env: Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """Name of the environment variable that holds the key, never the key itself."""
    price: UsdPrice | None = None
    """Price; looked up where it is left out and the model is a known one."""
    max_output_tokens: Annotated[int, Field(ge=16, le=200_000)] | None = None
    """Output cap of every request; 2048 where it is left out."""
    timeout_seconds: Annotated[int, Field(ge=1, le=600)] | None = None
    """Longest wait for one reply; 120 where it is left out."""
    structured_output: bool | None = None
    """Whether requests carry the reply's JSON Schema; true where it is left out."""


def _form(value: Any) -> str:
    return "name" if isinstance(value, str) else "entry"


ModelName = Annotated[str, Field(min_length=1, max_length=200)]
Answering = Annotated[Annotated[ModelName, Tag("name")] | Annotated[ModelEntry, Tag("entry")], Discriminator(_form)]


class ScenarioModels(Frozen):
    """Which model answers which tier. A tier that is not named takes ``default``, and then the settings'."""

    default: Answering | None = None
    """Model of every tier that is not named here."""
    planner: Answering | None = None
    """Writes and rewrites the plan."""
    executor: Answering | None = None
    """Proposes actions."""
    judge: Answering | None = None
    """Says whether a step is done."""
    summarizer: Answering | None = None
    """Condenses what happened."""

    def entry(self, tier: Tier) -> ModelEntry | None:
        """Return what the scenario says for ``tier``, or None where it says nothing."""
        said: Answering | None = getattr(self, tier.value)
        chosen = said if said is not None else self.default
        return ModelEntry(model=chosen) if isinstance(chosen, str) else chosen


class ScenarioLimits(Frozen):
    """Hard limits of the whole task; what is left out is unlimited."""

    usd: Annotated[Decimal, Field(gt=0, le=1_000_000, decimal_places=6)] | None = None
    """Money for model calls in US dollars, as ``0.50``."""
    tokens: LimitCount | None = None
    """Input and output tokens of all model calls."""
    model_calls: LimitCount | None = None
    """Requests to models, repairs included."""
    tool_calls: LimitCount | None = None
    """Actions performed."""

    def frozen_limits(self) -> Limits:
        """Return the limits with money in micro-dollars, as a run keeps them."""
        return Limits(
            microusd=None if self.usd is None else micro(self.usd),
            tokens=self.tokens,
            model_calls=self.model_calls,
            tool_calls=self.tool_calls,
        )


class ScenarioWorkspace(Frozen):
    """Where the task happens and which files it starts with."""

    kind: WorkspaceKind = WorkspaceKind.SANDBOX
    """``sandbox``: isolated by bubblewrap. ``local``: no isolation at all, commands run as the worker's user."""
    seed: FilePath | None = None
    """Folder relative to the scenario file: the workspace starts with its contents, not with the folder itself."""
    files: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_inside)], FileText],
        Field(default_factory=dict, max_length=200),
    ]
    """Files to start with, written over the seed: path → text."""
    limits: WorkspaceLimits = WorkspaceLimits()
    """Resource limits of a command in a sandbox."""


class Scenario(Frozen):
    """One task for Surefoot, as its author writes it."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    """Short name, for people."""
    goal: Annotated[str, Field(min_length=1, max_length=20_000)]
    """What is to be achieved, in words."""
    instructions: Annotated[str, Field(max_length=20_000)] = ""
    """Standing instructions: conventions, things to avoid."""
    task_type: Annotated[str, Field(min_length=1, max_length=60)] = "task"
    """Kind of task, for search."""
    requirements: Annotated[
        tuple[Annotated[Requirement, AfterValidator(_measurable_requirement)], ...],
        Field(min_length=1, max_length=50),
        AfterValidator(_can_finish),
    ]
    """What must hold, known to the agent; the task is finished when all mandatory ones do."""
    evaluator: Annotated[tuple[Annotated[Check, AfterValidator(_measurable)], ...], Field(max_length=50)] = ()
    """Checks hidden from the agent, run once at the end; they change no outcome and decide ``verified``."""
    bounds: Bounds = Bounds()
    """Bounds of the loops."""
    limits: ScenarioLimits = ScenarioLimits()
    """Limits of spend."""
    models: ScenarioModels = ScenarioModels()
    """Which model answers which tier."""
    rehearsal: FilePath | None = None
    """Script of the rehearsed model, relative to the scenario file."""
    tools: Annotated[tuple[ToolName, ...], Field(min_length=1, max_length=50), AfterValidator(_once_each)] = tuple(
        ToolName
    )
    """Tools that the task may use; all of them where it is left out."""
    secrets: SecretNames = ()
    """Names of secrets that commands find as environment variables; the worker's settings say where the values are."""
    workspace: ScenarioWorkspace = ScenarioWorkspace(files={})
    """Where it happens."""

    @model_validator(mode="after")
    def _rehearsal_is_asked_for(self) -> Self:
        entries = [self.models.entry(tier) for tier in Tier]
        if self.rehearsal is None and any(entry and entry.model == "rehearsed" for entry in entries):
            raise ValueError("a tier is rehearsed, so rehearsal must name the script")
        return self
