"""The arguments of the tools: what a model proposes, and what a rehearsal may write."""

from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from schemas.base import Frozen


def without_nul(text: str) -> str:
    """Return ``text``; raises ValueError for a NUL character, which neither a command line nor a path can hold."""
    if "\x00" in text:
        raise ValueError("must not contain NUL characters")
    return text


PathArgument = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(without_nul)]


class RunArguments(Frozen):
    """Arguments of ``run``."""

    command: Annotated[str, Field(min_length=1, max_length=20_000), AfterValidator(without_nul)]
    """Command line for sh -c."""


class ReadFileArguments(Frozen):
    """Arguments of ``read_file``."""

    path: PathArgument
    """Path relative to the workspace's folder."""
    start_line: Annotated[int, Field(ge=1, le=10_000_000)] = 1
    """First line to read, from 1."""


class WriteFileArguments(Frozen):
    """Arguments of ``write_file``."""

    path: PathArgument
    """Path relative to the workspace's folder; missing folders are made."""
    content: Annotated[str, Field(max_length=500_000)]
    """The file's whole new text."""


class EditFileArguments(Frozen):
    """Arguments of ``edit_file``."""

    path: PathArgument
    """Path relative to the workspace's folder."""
    old: Annotated[str, Field(min_length=1, max_length=100_000)]
    """Passage to replace, exactly as it stands in the file, white space included; it must occur exactly once."""
    new: Annotated[str, Field(max_length=100_000)]
    """Passage to put in its place."""

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.old == self.new:
            raise ValueError("old and new are the same: nothing would change")
        return self


class ListFilesArguments(Frozen):
    """Arguments of ``list_files``."""

    path: PathArgument = "."
    """Folder relative to the workspace's folder."""


class SearchFilesArguments(Frozen):
    """Arguments of ``search_files``."""

    text: Annotated[str, Field(min_length=1, max_length=1000)]
    """Text to find, literally, within one line."""
    path: PathArgument = "."
    """File, or folder with all below it, relative to the workspace's folder."""
    ignore_case: bool = False
    """Whether upper and lower case are the same."""


ARGUMENTS: dict[str, type[BaseModel]] = {
    "run": RunArguments,
    "read_file": ReadFileArguments,
    "write_file": WriteFileArguments,
    "edit_file": EditFileArguments,
    "list_files": ListFilesArguments,
    "search_files": SearchFilesArguments,
}
"""The arguments of each tool, by its name."""
