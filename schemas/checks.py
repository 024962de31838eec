"""Requirements and evaluator checks: what is measured, apart from what anybody claims."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from schemas.base import Count, Frozen, Line
from schemas.texts import TextRef

RelativePath = Annotated[str, Field(min_length=1, max_length=500)]
Globs = Annotated[tuple[RelativePath, ...], Field(max_length=100)]


class FileCheck(Frozen):
    """A file exists (or not) and its text matches."""

    kind: Literal["file"]
    """Always ``file``."""
    path: RelativePath
    """Path inside the workspace."""
    exists: bool = True
    """False: the file must not exist, and nothing else is looked at."""
    contains: Annotated[str, Field(max_length=5000)] | None = None
    """Text that must occur."""
    lacks: Annotated[str, Field(max_length=5000)] | None = None
    """Text that must not occur."""
    matches: Annotated[str, Field(max_length=500)] | None = None
    """Regular expression (Python's, multi-line) that must be found."""
    equals: Annotated[str, Field(max_length=20_000)] | None = None
    """The whole text, but for white space at both ends."""


class CommandCheck(Frozen):
    """A command, run in the workspace, ends with an exit code and prints something."""

    kind: Literal["command"]
    """Always ``command``."""
    run: Annotated[str, Field(min_length=1, max_length=5000)]
    """Command line for ``sh -c``."""
    exit_code: Annotated[int, Field(ge=0, le=255)] = 0
    """Exit code that it must end with."""
    prints: Annotated[str, Field(max_length=5000)] | None = None
    """Text that must occur in its output."""
    lacks: Annotated[str, Field(max_length=5000)] | None = None
    """Text that must not occur in its output."""
    timeout_seconds: Annotated[int, Field(ge=1, le=600)] = 60
    """Longest run time; longer is not met."""


class JsonCheck(Frozen):
    """A value inside a JSON file."""

    kind: Literal["json"]
    """Always ``json``."""
    path: RelativePath
    """Path of the JSON file inside the workspace."""
    pointer: Annotated[str, Field(max_length=500, pattern=r"^(/.*)?$")] = ""
    """JSON Pointer (RFC 6901) of the value; empty for the whole document."""
    equals: JsonValue = None
    """Value that it must equal, where ``minimum`` and ``maximum`` are not given."""
    minimum: float | None = None
    """Least number that it may be."""
    maximum: float | None = None
    """Greatest number that it may be."""


class DirectoryCheck(Frozen):
    """What changed in the workspace since it was opened."""

    kind: Literal["directory"]
    """Always ``directory``."""
    only_changed: Globs | None = None
    """Every created, changed or deleted path matches one of these patterns."""
    unchanged: Globs = ()
    """No created, changed or deleted path matches any of these patterns."""
    created: Globs = ()
    """Each of these patterns matches at least one path that was not there before."""


Check = Annotated[FileCheck | CommandCheck | JsonCheck | DirectoryCheck, Field(discriminator="kind")]


def longest_seconds(checks: Iterable[Check]) -> int:
    """Return how long the commands among ``checks`` may run, one after the other."""
    return sum(check.timeout_seconds for check in checks if isinstance(check, CommandCheck))


class Before(StrEnum):
    """What a requirement's check is expected to say before any work."""

    REPORT = "report"
    """Anything; it is recorded."""
    MUST_FAIL = "must_fail"
    """Not met; a check that passes before any work would prove nothing, and the run is refused."""


class Requirement(Frozen):
    """Something that must hold for the task to be finished; the agent knows it."""

    id: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")
    """Short name, as ``tests-pass``."""
    text: Annotated[str, Field(min_length=1, max_length=500)]
    """What must hold, in words."""
    mandatory: bool = True
    """Whether FINISHED depends on it."""
    before: Before = Before.REPORT
    """What its check must say before any work."""
    check: Check
    """How it is measured."""


class CheckResult(Frozen):
    """What one check said."""

    id: str
    """Id of the requirement; for the evaluator ``evaluator.<n>``, from 1."""
    met: bool
    """Whether it holds. A check that could not run is not met."""
    detail: Line
    """What was found, in a line."""
    output: TextRef | None = None
    """Excerpt of a command's output."""
    whole: TextRef | None = None
    """The whole output, where it is longer than the excerpt."""


class RequirementState(Frozen):
    """A requirement with its latest evidence."""

    id: str
    """Id of the requirement."""
    mandatory: bool
    """Whether FINISHED depends on it."""
    met_before: bool | None = None
    """The result before any work; None until then."""
    met: bool | None = None
    """The latest result; None before the first check. It can become unmet again."""
    detail: Line = ""
    """What the latest check found."""
    output: TextRef | None = None
    """Excerpt of the latest check's output."""
    whole: TextRef | None = None
    """The whole output, where it is longer than the excerpt."""
    checked: Count = 0
    """How many times it was checked."""
