"""Inputs that were prepared and not sent yet: what they refer to is kept for a while, as nothing else refers to it.

They lie beside the artifacts, under their own hash, so that whoever collects in that store sees them.
"""

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from stores.files import write_atomically

KEPT = timedelta(days=30)
"""How long from its last preparation on."""
FOLDER = "prepared"


def keep_prepared(artifacts_root: Path, input_json: str) -> None:
    """Keep what a task's input refers to. Raises StorageUnavailable."""
    data = input_json.encode()
    write_atomically(artifacts_root / FOLDER / f"{hashlib.sha256(data).hexdigest()}.json", data)


def prepared(artifacts_root: Path, now: datetime) -> Iterator[bytes]:
    """Yield the inputs whose time is not over."""
    yield from (path.read_bytes() for path in _inputs(artifacts_root) if not _is_over(path, now))


def forgotten(artifacts_root: Path, now: datetime) -> list[Path]:
    """Return the files of the inputs whose time is over."""
    return [path for path in _inputs(artifacts_root) if _is_over(path, now)]


def _inputs(artifacts_root: Path) -> list[Path]:
    return sorted((artifacts_root / FOLDER).glob("[0-9a-f]*.json"))


def _is_over(path: Path, now: datetime) -> bool:
    return now.timestamp() - path.stat().st_mtime > KEPT.total_seconds()
