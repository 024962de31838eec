"""Listing a workspace: bounded, in a fixed order, without following links and without noise."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from activities.workspaces.paths import MAX_DEPTH, PathRefused, open_folder
from activities.workspaces.stopping import Stopped

MAX_FILES = 20_000
MAX_COUNTED = 1_000_000
NOISE_NAMES = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".git", "node_modules"})
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


def walk(root: Path, stopped: Callable[[], bool], start: tuple[str, ...] = (), max_files: int = MAX_FILES) -> Listing:
    """List what is below ``start``, by path. Raises PathRefused for ``start``, and Stopped."""
    listing = Listing()
    with open_folder(root, start):
        pass  # raises where it is no folder of the workspace
    queue = [start]
    while queue:
        if stopped():
            raise Stopped
        if listing.skipped > MAX_COUNTED:
            break
        queue += reversed(_list_folder(root, queue.pop(), listing, max_files))
    listing.found.sort(key=lambda found: found.path)
    return listing


def is_noise(name: str) -> bool:
    """Whether a file or folder of this name is by-product, in which nobody looks for a change."""
    return name in NOISE_NAMES or name.endswith(NOISE_SUFFIXES)


def shown_path(path: str) -> str:
    """Return ``path`` printable on one line: with escapes where it is not, so that no name can forge another line."""
    if path.isprintable() and "\\" not in path:
        return path
    return path.encode("unicode_escape").decode("ascii")


def _list_folder(root: Path, parts: tuple[str, ...], listing: Listing, max_files: int) -> list[tuple[str, ...]]:
    """Add a folder's files to the listing and return its folders. One that vanished is empty."""
    folders: list[tuple[str, ...]] = []
    try:
        with open_folder(root, parts) as folder, os.scandir(folder) as entries:
            kept = sorted((entry for entry in entries if not is_noise(entry.name)), key=lambda entry: entry.name)
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
