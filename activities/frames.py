"""Frames: what a judge reads of a workspace. Texts are bounded, and the same for the same files."""

import difflib
import re
from collections.abc import Callable
from pathlib import Path

from activities.workspaces.excerpts import head_and_tail, in_lines
from activities.workspaces.manifest import Entry, EntryKind, Manifest, Texts, load_manifest, save_manifest
from activities.workspaces.scanning import scan
from activities.workspaces.walking import is_noise
from schemas.base import clip, counted
from schemas.frames import Frame
from schemas.workspace import SnapshotRequest
from stores.artifacts import ArtifactStore

MAX_LISTED_FILES = 200
MAX_LIST_CHARACTERS = 12_000
MAX_EXCERPT_CHARACTERS = 2500
MAX_EXCERPTS_CHARACTERS = 8000
MAX_DIFFERENCE_CHARACTERS = 6000
MAX_NAMED_CHANGES = 30
_LIKE_HEADING = re.compile(r"---\s.*---")
MAX_DIFFERENCE_LINES = 4000  # the comparison is quadratic in the worst case: 3 s for so many


def take_frame(root: Path, artifacts: ArtifactStore, request: SnapshotRequest, stopped: Callable[[], bool]) -> Frame:
    """Look at the workspace and describe it. Blocks; raises Stopped and ArtifactMissing."""
    with artifacts.together() as together:
        return _frame(root, together, request, stopped)


def _frame(root: Path, artifacts: ArtifactStore, request: SnapshotRequest, stopped: Callable[[], bool]) -> Frame:
    before = None if request.before is None else load_manifest(request.before, artifacts)
    now = scan(root, artifacts, before, stopped)
    difference = "" if before is None else describe_difference(before, now, artifacts, MAX_DIFFERENCE_CHARACTERS)
    return Frame(
        id=request.frame_id,
        fingerprint=now.fingerprint,
        text=artifacts.put_text(describe(now, artifacts)),
        difference=artifacts.put_text(difference) if difference else None,
        manifest=save_manifest(now, artifacts),
        files=now.files,
        skipped_files=now.skipped,
    )


def describe(manifest: Manifest, artifacts: ArtifactStore) -> str:
    """Return the list of files, and excerpts of the small texts changed last; no times are in it."""
    entries = {path: entry for path, entry in manifest.entries.items() if not is_noise(path)}
    lines = [_list_line(path, entry) for path, entry in sorted(entries.items())]
    listed = lines[:MAX_LISTED_FILES]
    if len(lines) > MAX_LISTED_FILES:
        listed.append(f"… {counted(len(lines) - MAX_LISTED_FILES, 'more file')}")
    hidden = len(manifest.entries) - len(entries)
    head = f"{counted(manifest.files, 'file')} in the workspace" if manifest.entries else "The workspace is empty."
    if manifest.skipped:
        head += f"; {counted(manifest.skipped, 'file')} beyond the frame's bounds, not read"
    parts = [head, in_lines(listed, MAX_LIST_CHARACTERS)] if entries else [head]
    if hidden:
        parts.append(f"… {counted(hidden, 'file')} of caches and version control not shown")
    return "\n".join([*parts, *_excerpts(entries, Texts(manifest, artifacts))])


def describe_difference(before: Manifest, now: Manifest, artifacts: ArtifactStore, limit: int) -> str:
    """Return what was created, changed and deleted, with a unified difference of small texts; empty for nothing."""
    changed = changed_paths(before, now)
    if not changed:
        return ""
    names = [path for path in changed if not is_noise(path)]
    said = [_said(before.entries.get(path), now.entries.get(path), path) for path in names[:MAX_NAMED_CHANGES]]
    if len(names) > MAX_NAMED_CHANGES:
        said.append(f"… {counted(len(names) - MAX_NAMED_CHANGES, 'more change')}")
    if len(changed) > len(names):
        said.append(f"… {len(changed) - len(names):,} changed files of caches and version control not shown")
    lines = [*said, ""] if names else said
    size = 0
    old, new = Texts(before, artifacts), Texts(now, artifacts)
    for path in names:
        added = _file_difference(path, (before.entries.get(path), old.of(path)), (now.entries.get(path), new.of(path)))
        lines += added
        size += sum(len(line) + 1 for line in added)
        if size > limit:
            break
    return in_lines(lines, limit)


def changed_paths(before: Manifest, now: Manifest) -> list[str]:
    """Return the paths that were created, changed or deleted, sorted."""
    return sorted(
        path
        for path in before.entries.keys() | now.entries.keys()
        if _identity(before.entries.get(path)) != _identity(now.entries.get(path))
    )


def _identity(entry: Entry | None) -> tuple[str, int, str] | None:
    return None if entry is None else (entry.kind, entry.mode, entry.sha256)


def _said(old: Entry | None, new: Entry | None, path: str) -> str:
    if old is None:
        return f"now an empty folder: {path}" if new and new.kind is EntryKind.FOLDER else f"created {path}"
    if new is None:
        return f"no empty folder any more: {path}" if old.kind is EntryKind.FOLDER else f"deleted {path}"
    return f"changed {path}"


def _list_line(path: str, entry: Entry) -> str:
    if entry.kind is EntryKind.FOLDER:
        return f"{path}/  (empty folder)"
    if entry.kind is not EntryKind.FILE:
        return f"{path}  ({'symbolic link' if entry.kind is EntryKind.LINK else 'no regular file'})"
    executable = ", executable" if entry.mode & 0o100 else ""
    return f"{path}  ({entry.size_bytes:,} bytes{executable})"


def _excerpts(entries: dict[str, Entry], texts: Texts) -> list[str]:
    shown: list[str] = []
    left = MAX_EXCERPTS_CHARACTERS
    latest = sorted(entries.items(), key=lambda item: (-item[1].modified_ns, item[0]))
    for path, _ in latest:
        heading = f"\n--- {path} ---"
        room = min(MAX_EXCERPT_CHARACTERS, left - len(heading) - 2)
        if room < MAX_EXCERPT_CHARACTERS // 10:
            break
        text = texts.of(path)
        if text is None:
            continue
        excerpt = _no_heading(head_and_tail(_no_heading(text), room))  # once more: a cut can begin a line
        shown.append(f"{heading}\n{excerpt or '(empty)'}")
        left -= len(shown[-1]) + 1
    return shown


def _no_heading(text: str) -> str:
    """Mark the lines of a file that could pass for the heading of another file's excerpt."""
    lines = text.splitlines(keepends=True)
    return "".join(f"\\{line}" if _LIKE_HEADING.fullmatch(line.strip()) else line for line in lines)


def _file_difference(
    path: str, before: tuple[Entry | None, str | None], after: tuple[Entry | None, str | None]
) -> list[str]:
    (old, old_text), (new, new_text) = before, after
    lines: list[str] = []
    if EntryKind.FOLDER in (old and old.kind, new and new.kind):
        return lines
    if old is not None and new is not None and old.mode != new.mode:
        lines.append(f"mode of {path} changed from {old.mode:o} to {new.mode:o}")
    if old is not None and new is not None and old.sha256 == new.sha256:
        return lines
    if (old is not None and old_text is None) or (new is not None and new_text is None):
        sizes = [f"{entry.size_bytes:,} bytes" if entry else "nothing" for entry in (old, new)]
        return [*lines, f"{path}: from {sizes[0]} to {sizes[1]}, no small text on both sides"]
    texts = (old_text or "").splitlines(), (new_text or "").splitlines()
    return [*lines, *_text_difference(path, *texts, old is None, new is None)]


def _text_difference(path: str, before: list[str], after: list[str], created: bool, deleted: bool) -> list[str]:
    if max(len(before), len(after)) > MAX_DIFFERENCE_LINES:
        return [f"{path}: from {len(before):,} to {len(after):,} lines, too many to compare line by line"]
    names = ("/dev/null" if created else f"a/{path}", "/dev/null" if deleted else f"b/{path}")
    found = [clip(line) for line in difflib.unified_diff(before, after, *names, lineterm="")]
    found[2:] = [f"\\{line}" if line.startswith(("--- ", "+++ ")) else line for line in found[2:]]  # no heading
    return found or [f"{path}: empty" if created or deleted else f"{path}: only line ends differ"]
