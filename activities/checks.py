"""Checks: what is measured, apart from what anybody claims. A check that cannot run is not met."""

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from activities.frames import changed_paths
from activities.workspaces.commands import CommandResult, Ending, run_command
from activities.workspaces.excerpts import head_and_tail, last_line, line_of
from activities.workspaces.globs import matches_any
from activities.workspaces.manifest import EntryKind, Manifest, load_manifest
from activities.workspaces.matching import MatchFailed, found_in
from activities.workspaces.paths import PathRefused, lookup, read_file, split_path
from activities.workspaces.sandbox import shell_command
from activities.workspaces.scanning import scan
from activities.workspaces.stopping import Stopped
from schemas.checks import Check, CheckResult, CommandCheck, DirectoryCheck, FileCheck, JsonCheck
from schemas.effects import ProcessGroup
from schemas.texts import TextRef
from schemas.workspace import Workspace
from stores.artifacts import ArtifactStore

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_OUTPUT_CHARACTERS = 2000
MAX_DETAIL_CHARACTERS = 500
MAX_NAMED_PATHS = 5
# compiled files that the agent's own runs left behind must not answer for the sources
_NO_LEFTOVERS = {"PYTHONPYCACHEPREFIX": "/dev/null/none"}

Mask = Callable[[str], str]


@dataclass(frozen=True)
class Found:
    """What a check found."""

    met: bool
    detail: str
    output: str = ""


class Checks:
    """Runs the checks of one workspace."""

    def __init__(self, workspace: Workspace, root: Path, artifacts: ArtifactStore, stop: asyncio.Event) -> None:
        """Look at the workspace in the folder ``root``; end early when ``stop`` is set."""
        self._workspace = workspace
        self._root = root
        self._artifacts = artifacts
        self._stop = stop

    async def run(self, checks: Sequence[tuple[str, Check]]) -> tuple[CheckResult, ...]:
        """Run the checks one after the other and return a result for each id. Raises Stopped."""
        results = []
        for identity, check in checks:
            if self._stop.is_set():
                raise Stopped
            found = await self._find(check)
            detail = line_of(self._artifacts.secrets.mask(found.detail), MAX_DETAIL_CHARACTERS)
            output, whole = await asyncio.to_thread(self._keep, found.output) if found.output else (None, None)
            results.append(CheckResult(id=identity, met=found.met, detail=detail, output=output, whole=whole))
        return tuple(results)

    def _keep(self, output: str) -> tuple[TextRef, TextRef | None]:
        """Store the excerpt of an output, and all of it where it is longer."""
        excerpt = head_and_tail(output, MAX_OUTPUT_CHARACTERS)
        with self._artifacts.together() as together:
            return together.put_text(excerpt), together.put_text(output) if output != excerpt else None

    async def _find(self, check: Check) -> Found:
        try:
            if isinstance(check, FileCheck):
                return await self._file(check)
            if isinstance(check, CommandCheck):
                return await self._command(check)
            if isinstance(check, JsonCheck):
                return await asyncio.to_thread(check_json, self._root, check, self._artifacts.secrets.mask)
            return await asyncio.to_thread(self._directory, check)
        except (PathRefused, MatchFailed, OSError) as error:
            return Found(False, str(error))

    async def _file(self, check: FileCheck) -> Found:
        parts = split_path(self._root, check.path)
        if not check.exists:
            there = await asyncio.to_thread(lookup, self._root, parts)
            return Found(there is None, f"{check.path} {'does not exist' if there is None else 'exists'}")
        data = await asyncio.to_thread(read_file, self._root, parts, MAX_FILE_BYTES)
        text = data.decode("utf-8", "replace")
        problem = text_problem(check, text, self._artifacts.secrets.mask)
        if problem is None and check.matches is not None and not await found_in(check.matches, text):
            problem = f"has no match for {line_of(check.matches, 100)!r}"
        return Found(problem is None, f"{check.path} {problem or 'is as it must be'}")

    async def _command(self, check: CommandCheck) -> Found:
        async def release(_: ProcessGroup) -> None:
            """Nothing is claimed for a check: it may run any number of times."""

        secrets = self._artifacts.secrets
        env = {**_NO_LEFTOVERS, **await asyncio.to_thread(secrets.resolve, self._workspace.secrets)}
        command = shell_command(self._workspace, self._root, check.run, check.timeout_seconds, env)
        result = await run_command(command, self._stop, release, secrets)
        if result.ending is Ending.STOPPED:
            raise Stopped
        problem = command_problem(check, result)
        said = last_line(result.output)
        detail = f"{problem}: …{said}" if problem and said else problem or f"exit code {result.exit_code}, as expected"
        return Found(problem is None, detail, result.output)

    def _directory(self, check: DirectoryCheck) -> Found:
        seed = load_manifest(self._workspace.seed_manifest, self._artifacts)
        return check_directory(check, seed, scan(self._root, self._artifacts, seed, self._stop.is_set))


def text_problem(check: FileCheck, text: str, mask: Mask) -> str | None:
    """Return what is wrong with a file's text, quoted masked, or None; ``matches`` is looked at elsewhere."""
    if check.contains is not None and check.contains not in text:
        return f"does not contain {line_of(check.contains, 100)!r}"
    if check.lacks is not None and check.lacks in text:
        return f"contains {line_of(check.lacks, 100)!r}"
    if check.equals is not None and check.equals.strip() != text.strip():
        return f"is not the expected text, it begins with {line_of(mask(text), 100)!r}"
    return None


def command_problem(check: CommandCheck, result: CommandResult) -> str | None:
    """Return what is wrong with a command's end, or None."""
    if result.ending is Ending.TIMED_OUT:
        return f"killed after {check.timeout_seconds} s"
    if result.exit_code != check.exit_code:
        return f"exit code {result.exit_code}, expected {check.exit_code}"
    unknown = f", but {result.dropped_bytes:,} bytes of its output were not kept" if result.dropped_bytes else ""
    if check.prints is not None and check.prints not in result.output:
        return f"does not print {line_of(check.prints, 100)!r}{unknown}"
    if check.lacks is not None and check.lacks in result.output:
        return f"prints {line_of(check.lacks, 100)!r}"
    if check.lacks is not None and unknown:
        return f"was not seen to print {line_of(check.lacks, 100)!r}{unknown}"
    return None


def check_json(root: Path, check: JsonCheck, mask: Mask) -> Found:
    """Compare a value inside a JSON file. What is quoted is masked. Blocks; raises PathRefused."""
    data = read_file(root, split_path(root, check.path), MAX_FILE_BYTES)
    try:
        value = resolve_pointer(json.loads(data, parse_constant=_no_number), check.pointer)
    except (ValueError, RecursionError) as error:
        return Found(False, f"{check.path} is no JSON: {error}")
    except LookupError as error:
        return Found(False, f"{check.path} has nothing at {error.args[0]!r}")
    where = f"{check.path}{f' at {check.pointer}' if check.pointer else ''} is {_short(value, mask)}"
    if check.minimum is None and check.maximum is None:
        met = same_json(value, check.equals)
        return Found(met, where if met else f"{where}, expected {_short(check.equals, mask)}")
    if not isinstance(value, int | float) or isinstance(value, bool) or value in (math.inf, -math.inf):  # as 1e999 is
        return Found(False, f"{where}, expected a number")
    if check.minimum is not None and not value >= check.minimum:
        return Found(False, f"{where}, expected at least {check.minimum:g}")
    if check.maximum is not None and not value <= check.maximum:
        return Found(False, f"{where}, expected at most {check.maximum:g}")
    return Found(True, where)


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def resolve_pointer(document: Any, pointer: str) -> Any:
    """Return the value at a JSON Pointer (RFC 6901). Raises LookupError with the part of the pointer that leads on."""
    value = document
    walked = ""
    for token in pointer.split("/")[1:]:
        walked += f"/{token}"
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and _is_index(key) and int(key) < len(value):
            value = value[int(key)]
        else:
            raise LookupError(walked)
    return value


def _is_index(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) < 10 and (key == "0" or not key.startswith("0"))


def same_json(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same; ``true`` is not 1, while 1 and 1.0 are one number."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same_json, left, right))
    return bool(left == right)


def check_directory(check: DirectoryCheck, seed: Manifest, now: Manifest) -> Found:
    """Compare the files with the ones the workspace started with; empty folders do not count."""
    if now.skipped or seed.skipped:
        return Found(False, f"{max(now.skipped, seed.skipped):,} files are beyond the bounds and were not compared")
    changed = [path for path in changed_paths(seed, now) if not _is_folder(path, seed, now)]
    created = [path for path in changed if path not in seed.entries]
    touched = [path for path in changed if matches_any(path, check.unchanged)]
    if touched:
        return Found(False, f"changed, and must not be: {_named(touched)}")
    if check.only_changed is not None:
        others = [path for path in changed if not matches_any(path, check.only_changed)]
        if others:
            return Found(False, f"changed beside {', '.join(check.only_changed)}: {_named(others)}")
    missing = [pattern for pattern in check.created if not any(matches_any(path, (pattern,)) for path in created)]
    if missing:
        return Found(False, f"nothing was created that matches {_named(missing)}")
    return Found(True, f"changed: {_named(changed)}" if changed else "nothing has changed")


def _is_folder(path: str, seed: Manifest, now: Manifest) -> bool:
    entries = [manifest.entries[path] for manifest in (seed, now) if path in manifest.entries]
    return all(entry.kind is EntryKind.FOLDER for entry in entries)


def _named(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED_PATHS:,} more" if len(names) > MAX_NAMED_PATHS else ""
    return ", ".join(names[:MAX_NAMED_PATHS]) + more


def _short(value: Any, mask: Mask) -> str:
    return line_of(mask(json.dumps(value, ensure_ascii=False)), 100)
