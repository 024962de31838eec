"""The run archive: what moved out of a run's state, readable after Temporal has forgotten the run."""

import hashlib
import re
from pathlib import Path

from schemas.texts import BlobRef
from stores.artifacts import ArtifactStore
from stores.files import write_once

MAX_FOLDER_ID = 150


class RunArchive:
    """Numbered chunks of records, one folder per chain: ``<root>/<workflow id>.<end of the first run id>/0001.json``.

    Each chunk is an artifact too, which is what the state refers to.
    """

    def __init__(self, root: Path, artifacts: ArtifactStore) -> None:
        """Keep the readable files under ``root`` and the chunks' artifacts in ``artifacts``."""
        self._root = root
        self._artifacts = artifacts

    def folder(self, workflow_id: str, first_run_id: str) -> Path:
        """Return the chain's folder; it exists once a chunk was put."""
        # run ids are UUIDs ordered by time: their first 8 digits are the same for a minute, the last 12 are chance
        return self._root / f"{_file_name(workflow_id)}.{first_run_id[-12:]}"

    def put_chunk(self, workflow_id: str, first_run_id: str, chunk_no: int, records_json: str) -> BlobRef:
        """Write one chunk and return its artifact; the same number with the same content is written once.

        A reset may archive other records under a number that was used: they get their own file beside the first.
        Raises PayloadTooLarge.
        """
        data = records_json.encode()
        ref = self._artifacts.put_bytes(data)
        folder = self.folder(workflow_id, first_run_id)
        path = folder / f"{chunk_no:04d}.json"
        if not write_once(path, data) and path.read_bytes() != data:
            write_once(folder / f"{chunk_no:04d}.{ref.sha256[:16]}.json", data)
        return ref

    def chunks(self, workflow_id: str, first_run_id: str) -> list[str]:
        """Return the chunks' JSON in the order of their numbers; empty for a chain that archived nothing."""
        paths = self.folder(workflow_id, first_run_id).glob("*.json")
        return [path.read_text("utf-8") for path in sorted(paths, key=_order)]


def _order(path: Path) -> tuple[int, int, str]:
    number, _, rest = path.name.partition(".")
    return int(number), len(rest), rest


def _file_name(workflow_id: str) -> str:
    """Return the id itself where it can be a folder's name, else a readable part of it with a hash."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", workflow_id)[:MAX_FOLDER_ID]
    if name == workflow_id:
        return name
    return f"{name}-{hashlib.sha256(workflow_id.encode()).hexdigest()[:12]}"
