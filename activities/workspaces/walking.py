"""Listing a workspace: bounded, in a fixed order, without following links."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from activities.workspaces.paths import MAX_DEPTH, PathRefused, open_folder
from activities.workspaces.stopping import Stopped

MAX_FILES = 20_000
MAX_COUNTED = 1_000_000
CACHE_NAMES = frozenset({".pytest_cache", ".mypy_cache", ".ruff_cache"})  # folders that no program takes code from
NOISE_NAMES = frozenset({"__pycache__", ".git", "node_modules"})
NOISE_SUFFIXES = (".pyc", ".pyo")


@dataclass(frozen=True)
class Found:
    """Something in the workspace that is no folder, or an empty folder."""

    parts: tuple[str, ...]
    """The path's components, as the system knows them."""
    stat: os.stat_result

    @property
    def path(self) -> str:
        """The path as it is shown and compared: printable, and different for different files."""
        return shown_path("/".join(self.parts))

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self.stat.st_mode)

    @property
    def kind(self) -> str:
        """What it is, in words."""
        kinds = {stat.S_IFREG: "file", stat.S_IFLNK: "symbolic link", stat.S_IFDIR: "empty folder"}
        return kinds.get(stat.S_IFMT(self.stat.st_mode), "no regular file")


@dataclass
class Listing:
    """What a walk has found."""

    found: list[Found] = field(default_factory=list)
    skipped: int = 0
    """Files beyond ``MAX_FILES``, and folders that cannot be read."""


def walk(
    root: Path,
    stopped: Callable[[], bool],
    start: tuple[str, ...] = (),
    max_files: int = MAX_FILES,
    noise: bool = True,
) -> Listing:
    """List what is below ``start``, by path, test caches left out, and noise too unless it is asked for.

    Raises PathRefused for ``start``, and Stopped.
    """
    listing = Listing()
    with open_folder(root, start):
        pass  # raises where it is no folder of the workspace
    queue = [start]
    last: list[tuple[str, ...]] = []  # folders of noise, so that they do not use up the bounds of the others
    while queue or last:
        if stopped():
            raise Stopped
        if listing.skipped > MAX_COUNTED:
            break
        queue = queue or [last.pop()]
        for folder in reversed(_list_folder(root, queue.pop(), listing, max_files, noise)):
            (last if is_noise(folder[-1]) else queue).append(folder)
    listing.found.sort(key=lambda found: found.path)
    return listing


def is_noise(path: str) -> bool:
    """Whether a path is a by-product's or version control's, which is compared like any other but not shown."""
    return path.endswith(NOISE_SUFFIXES) or not NOISE_NAMES.isdisjoint(path.split("/"))


def shown_path(path: str) -> str:
    """Return ``path`` printable on one line: with escapes where it is not, so that no name can forge another line."""
    if path.isprintable() and "\\" not in path:
        return path
    return path.encode("unicode_escape").decode("ascii")


def _list_folder(
    root: Path, parts: tuple[str, ...], listing: Listing, max_files: int, noise: bool
) -> list[tuple[str, ...]]:
    """Add a folder's files to the listing and return its folders. One that vanished is empty."""
    folders: list[tuple[str, ...]] = []
    try:
        with open_folder(root, parts) as folder, os.scandir(folder) as entries:
            kept = sorted((entry for entry in entries if _is_listed(entry, noise)), key=lambda entry: entry.name)
            for entry in kept:
                inner = (*parts, entry.name)
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder and len(inner) <= MAX_DEPTH:
                    folders.append(inner)
                elif not is_folder and len(listing.found) < max_files:
                    listing.found.append(Found(inner, entry.stat(follow_symlinks=False)))
                else:
                    listing.skipped += 1
            if not kept and parts and len(listing.found) < max_files:
                listing.found.append(Found(parts, os.fstat(folder)))
    except FileNotFoundError:
        return []
    except (PathRefused, OSError):
        listing.skipped += 1
        return []
    return folders


def _is_listed(entry: os.DirEntry[str], noise: bool) -> bool:
    if entry.name in CACHE_NAMES and entry.is_dir(follow_symlinks=False):
        return False
    return noise or not is_noise(entry.name)
