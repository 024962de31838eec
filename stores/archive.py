"""The run archive: a run's events in numbered chunks, readable after Temporal has forgotten the run."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from schemas.base import Count, Frozen
from schemas.errors import ArtifactMissing
from schemas.state import Event
from schemas.texts import BlobRef
from stores.artifacts import ArtifactStore
from stores.files import write_once

MAX_FOLDER_ID = 150
SUFFIX = ".jsonl"
HISTORY = "history."


class ChunkHead(Frozen):
    """The first line of a chunk: whose it is, and how many lines should follow."""

    workflow_id: str
    """Temporal's workflow id."""
    first_run_id: str
    """First run of the chain."""
    chunk: Count = Field(ge=1)
    """Number of the chunk."""
    events: Count
    """Events in it."""
    last: bool = False
    """Whether the run had ended with it."""


@dataclass(frozen=True)
class Chunk:
    """What could be read of one chunk."""

    head: ChunkHead | None
    """Its first line; None where that is damaged."""
    events: tuple[Event, ...]
    """The events that are whole."""
    torn: int = 0
    """Lines that hold no event."""


@dataclass(frozen=True)
class Archived:
    """What could be read of a run's archive."""

    events: tuple[Event, ...] = ()
    """Oldest first, each once."""
    missing: tuple[str, ...] = ()
    """What could not be read, a sentence each; empty where everything is there."""
    complete: bool = False
    """Whether the run's end is in it."""


class RunArchive:
    """Numbered chunks of events, one folder per chain: ``<root>/<workflow id>.<end of the first run id>/0001.jsonl``.

    A line is an event, the first line is the chunk's head. Each chunk is an artifact too, which is what the state
    refers to.
    """

    def __init__(self, root: Path, artifacts: ArtifactStore) -> None:
        """Keep the readable files under ``root`` and the chunks' artifacts in ``artifacts``."""
        self.root = root
        self._artifacts = artifacts

    def folder(self, workflow_id: str, first_run_id: str) -> Path:
        """Return the chain's folder; it exists once a chunk was put."""
        # run ids are UUIDs ordered by time: their first 8 digits are the same for a minute, the last 12 are chance
        return self.root / f"{_file_name(workflow_id)}.{first_run_id[-12:]}"

    def put_chunk(self, workflow_id: str, first_run_id: str, chunk_no: int, records_jsonl: str) -> BlobRef:
        """Write one chunk and return its artifact; the same number with the same content is written once.

        A reset may archive other records under a number that was used: they get their own file beside the first.
        Raises PayloadTooLarge.
        """
        return self._artifacts.put_bytes(self._write(workflow_id, first_run_id, chunk_no, records_jsonl, last=False))

    def put_last_chunk(self, workflow_id: str, first_run_id: str, chunk_no: int, records_jsonl: str) -> None:
        """Write the chunk with which a run ends, likewise; it is no artifact, since the final state holds the same."""
        self._write(workflow_id, first_run_id, chunk_no, records_jsonl, last=True)

    def put_history(self, workflow_id: str, first_run_id: str, run_id: str, history_json: str) -> None:
        """Keep Temporal's history of a run whose state nobody could read, once. Raises StorageUnavailable."""
        write_once(self.history(workflow_id, first_run_id, run_id), history_json.encode())

    def history(self, workflow_id: str, first_run_id: str, run_id: str) -> Path:
        """Return the file of such a history, as Temporal's own tools write and read it; it exists once it was put."""
        return self.folder(workflow_id, first_run_id) / f"{HISTORY}{run_id}.json"

    def histories(self) -> list[Path]:
        """Return the files of all histories that are kept."""
        return sorted(self.root.glob(f"*/{HISTORY}*.json"))

    def chains(self, workflow_id: str) -> list[str]:
        """Return the first run ids of the archived chains of a workflow id, the latest last."""
        found: dict[str, float] = {}
        for folder in self.root.glob(f"{_file_name(workflow_id)}.*"):
            for path in sorted(folder.glob(f"*{SUFFIX}")):
                head = _head_of(path)
                if head and head.workflow_id == workflow_id:
                    found[head.first_run_id] = path.stat().st_mtime
        return sorted(found, key=lambda first_run_id: found[first_run_id])

    def read(self, workflow_id: str, first_run_id: str, known: Sequence[BlobRef] | None = None) -> Archived:
        """Return what is archived of a chain; what is missing or torn is said, never raised.

        ``known`` are the chunks that the run's state refers to: they decide which of several versions of a chunk
        counts, and the artifact store helps out where a file is damaged. Without them the folder has to do.
        """
        files = self._files(workflow_id, first_run_id)
        numbers = range(1, len(known) + 1) if known is not None else range(1, max(files, default=0) + 1)
        events: dict[str, Event] = {}
        missing: list[str] = []
        complete = known is not None
        for number in numbers:
            ref = known[number - 1] if known is not None else None
            data = self._data(files.get(number, []), ref)
            chunk = read_chunk(data) if data is not None else None
            missing += _problems(number, chunk)
            if chunk is not None:
                events |= {event.id: event for event in chunk.events}
                complete = complete or (chunk.head is not None and chunk.head.last)
        return Archived(in_order(events.values()), tuple(missing), complete)

    def _write(self, workflow_id: str, first_run_id: str, chunk_no: int, records_jsonl: str, *, last: bool) -> bytes:
        head = ChunkHead(
            workflow_id=workflow_id,
            first_run_id=first_run_id,
            chunk=chunk_no,
            events=records_jsonl.count("\n"),
            last=last,
        )
        data = f"{head.model_dump_json()}\n{records_jsonl}".encode()
        folder = self.folder(workflow_id, first_run_id)
        path = folder / f"{chunk_no:04d}{SUFFIX}"
        if not write_once(path, data) and path.read_bytes() != data:
            write_once(folder / f"{chunk_no:04d}.{hashlib.sha256(data).hexdigest()[:16]}{SUFFIX}", data)
        return data

    def _files(self, workflow_id: str, first_run_id: str) -> dict[int, list[Path]]:
        """Return the files of each chunk, the one written last at the end."""
        found: dict[int, list[Path]] = {}
        for path in self.folder(workflow_id, first_run_id).glob(f"[0-9]*{SUFFIX}"):
            number = path.name.partition(".")[0]
            if number.isdecimal():  # not somebody's own "0001 copy.jsonl"
                found.setdefault(int(number), []).append(path)
        return {number: sorted(paths, key=lambda path: path.stat().st_mtime_ns) for number, paths in found.items()}

    def _data(self, paths: list[Path], ref: BlobRef | None) -> bytes | None:
        contents = [path.read_bytes() for path in paths]
        if ref is None:
            return contents[-1] if contents else None
        whole = next((data for data in contents if hashlib.sha256(data).hexdigest() == ref.sha256), None)
        if whole is not None:
            return whole
        try:
            return self._artifacts.get_bytes(ref)
        except ArtifactMissing:
            return contents[-1] if contents else None


def read_chunk(data: bytes) -> Chunk:
    """Return what is whole in a chunk; lines that are torn or foreign are counted."""
    first, *lines = data.decode("utf-8", "replace").split("\n")
    try:
        head = ChunkHead.model_validate_json(first)
    except ValidationError:
        head, lines = None, [first, *lines]
    events: list[Event] = []
    torn = 0
    for line in filter(None, lines):
        try:
            events.append(Event.model_validate_json(line))
        except ValidationError:
            torn += 1
    return Chunk(head, tuple(events), torn)


def in_order(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return events in the order of their numbers."""
    return tuple(sorted(events, key=number_of))


def number_of(event: Event) -> int:
    """Return the number in an event's id."""
    return int(event.id[1:])


def _head_of(path: Path) -> ChunkHead | None:
    with path.open("rb") as file:
        return read_chunk(file.readline()).head


def _problems(number: int, chunk: Chunk | None) -> Iterator[str]:
    """Yield what is wrong with a chunk, a sentence each."""
    if chunk is None:
        yield f"chunk {number} is missing"
    elif chunk.head is None:
        yield f"chunk {number} has lost its beginning; {len(chunk.events)} events of it can be read"
    elif len(chunk.events) < chunk.head.events:
        after = f", the last one {chunk.events[-1].id}" if chunk.events else ""
        yield f"chunk {number} is torn: {len(chunk.events)} of its {chunk.head.events} events can be read{after}"


def _file_name(workflow_id: str) -> str:
    """Return the id itself where it can be a folder's name, else a readable part of it with a hash."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", workflow_id)[:MAX_FOLDER_ID]
    if name == workflow_id:
        return name
    return f"{name}-{hashlib.sha256(workflow_id.encode()).hexdigest()[:12]}"
