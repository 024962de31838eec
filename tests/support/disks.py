"""Disks that are full or read-only, without harm to the machine's own: they need a right that not every machine gives.

Root ignores the modes of files, so nothing less than a read-only mount is read-only for it.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

UNSHARE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]


def read_only(folder: Path) -> list[str]:
    """Return a command that runs another one with ``folder`` mounted read-only; skips the test where none may."""
    mount = f'mount --bind "{folder}" "{folder}" && mount -o remount,bind,ro "{folder}" && exec "$@"'
    command = [*UNSHARE, "sh", "-c", mount, "sh"]
    done = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"NOT TESTED HERE: no mount namespace for a read-only folder: {done.stderr.strip()}")
    return command


def as_a_stranger(folder: Path) -> list[str]:
    """Give ``folder`` to somebody else, and return a command that runs another one as a user who may only read it."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
        if os.geteuid() == 0:
            os.chown(path, 65_534, 65_534)
        else:
            path.chmod(path.stat().st_mode & 0o555)
    return ["setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"] if os.geteuid() == 0 else ["env"]


@contextlib.contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[None]:
    """Mount a disk of that size at ``folder``; skips the test where that is not allowed."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "surefoot-test", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"NOT TESTED HERE: a small disk cannot be mounted: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take what room there is on the disk of ``folder``, and return the file that holds it."""
    path = folder / "filler"
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        for size in (65_536, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    return path
