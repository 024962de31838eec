"""Garbage collection: what neither an open run nor a record needs. `surefoot gc --help` states the policy."""

import asyncio
import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from temporalio.service import RPCError

from client.embedded import server_of, supervisor_of, wake_embedded, worker_of
from client.histories import Found, Unsearchable, content, references
from client.problems import BadInput, PrerequisiteError
from client.session import Session, check_stores, with_session
from schemas.base import counted
from schemas.outcome import EXIT_PREREQUISITE, EXIT_VERIFIED
from stores.artifacts import ArtifactStore
from stores.database import shown
from stores.identity import StoresDiffer
from stores.ledger import Ledger
from stores.marking import hashes_in, reachable, workspace_is_over, workspaces_in
from stores.prepared import forgotten, prepared
from stores.records import RunRow, UnendedChain
from stores.settings import Settings
from stores.temporal import ServerUnreachable
from stores.unrecorded import Unrecorded

YOUNG = timedelta(days=1)
OLDEST = timedelta(days=36_500)
ALL_RUNS = 2**31 - 1
NAMED_RUNS = 3
RECORD = "workspace.json"


@dataclass
class Swept:
    """What was removed, or would be."""

    dry_run: bool
    """Whether nothing was removed in fact."""
    artifacts: int = 0
    """Artifacts removed."""
    artifact_bytes: int = 0
    """Their size."""
    artifacts_kept: int = 0
    """Artifacts that something refers to."""
    artifacts_young: int = 0
    """Artifacts that nothing refers to, but that were put within the last day."""
    workspaces: list[str] = field(default_factory=list)
    """Names of the workspaces removed."""
    logs: list[str] = field(default_factory=list)
    """Names of the logs removed."""
    recorded: list[str] = field(default_factory=list)
    """Ids of tasks that had ended without a record, and have one now."""
    held_back: str = ""
    """Why no artifact was removed, where that is so."""
    problems: list[str] = field(default_factory=list)
    """What could not be removed, and why."""


def gc(settings: Settings, older_than: str, dry_run: bool, as_json: bool) -> int:
    """Remove what nothing needs; print what that was. Raises PrerequisiteError where Temporal cannot be asked."""
    age = parse_age(older_than)
    try:
        wake_embedded(settings)
        swept = with_session(settings, lambda session: _collect(session, age, dry_run))
    except Unsearchable:
        raise
    except (ServerUnreachable, RPCError, PrerequisiteError) as error:
        problem = f"nothing was removed, since Temporal cannot be asked which runs are open: {error}"
        raise PrerequisiteError(problem) from error
    print(json.dumps(asdict(swept), ensure_ascii=False) if as_json else "\n".join(_lines(swept)))
    return EXIT_PREREQUISITE if swept.problems else EXIT_VERIFIED


def parse_age(text: str) -> timedelta:
    """Return an age as ``30d`` or ``12h``. Raises BadInput."""
    match = re.fullmatch(r"([0-9]{1,6})([dh])", text)
    if match is None:
        raise BadInput(f"--older-than wants days or hours, as 30d or 12h, not {text!r}")
    age = timedelta(hours=int(match[1]) * (24 if match[2] == "d" else 1))
    if age > OLDEST:
        raise BadInput(f"--older-than {text}: nothing is older than {OLDEST.days} days; name a shorter time")
    return age


async def _collect(session: Session, older_than: timedelta, dry_run: bool) -> Swept:
    """Record what ended without a record, and mark everything; only then is anything removed.

    Raises StoresDiffer where the ledger is another one's.
    """
    await check_stores(session)
    if (await asyncio.to_thread(session.ledger.stores))[1] is None:  # it refers to nothing: all would be garbage
        ledger = shown(session.settings.database_url)
        raise StoresDiffer(f"nothing was removed: no worker has started with the ledger {ledger}; is it the right one?")
    swept = Swept(dry_run)
    if not dry_run:
        unrecorded = Unrecorded(session.client, session.ledger, session.artifacts, session.archive)
        swept.recorded = await unrecorded.record(session.settings.queue_prefix)
    names = await asyncio.to_thread(session.artifacts.names)
    folders = frozenset(path.name for path in session.settings.workspaces_dir.glob("[!.]*"))
    found = await references(session, names, folders)
    return await asyncio.to_thread(_sweep, session, found, older_than, swept)


def _sweep(session: Session, found: Found, older_than: timedelta, swept: Swept) -> Swept:
    settings, now, folders = session.settings, datetime.now(UTC), found.folders
    ledger = Ledger(settings.database_url)
    lost = [chain for chain in ledger.without_end() if _may_live_elsewhere(chain, found, now - older_than)]
    if lost:
        swept.held_back = _held_back(lost)
    else:
        _sweep_artifacts(session, ledger, found, swept)
    ends = _ends(ledger.runs(ALL_RUNS), session.artifacts, folders)
    for name in sorted(folders):
        folder = settings.workspaces_dir / name
        over = workspace_is_over(
            opened=_touched(folder / RECORD if (folder / RECORD).exists() else folder),
            ended=ends.get(name),
            in_open_run=name in found.open_workspaces,
            in_history=name in found.workspaces or bool(lost),
            now=now,
            older_than=older_than,
            young=YOUNG,
        )
        if over and _remove(folder, swept):
            swept.workspaces.append(name)
    _sweep_logs(settings, now - older_than, swept)
    _sweep_leftovers(settings, now - YOUNG, swept)
    return swept


def _may_live_elsewhere(chain: UnendedChain, found: Found, since: datetime) -> bool:
    """Whether a run neither ended here nor is known to this Temporal, and was active lately."""
    return chain.first_run_id not in found.chains and datetime.fromisoformat(chain.last_effect_at) > since


def _held_back(lost: list[UnendedChain]) -> str:
    some = ", ".join(chain.workflow_id for chain in lost[:NAMED_RUNS]) + (" …" if len(lost) > NAMED_RUNS else "")
    return (
        f"no artifact was removed: this Temporal does not know of {counted(len(lost), 'run')} without a recorded end, "
        f"which may go on at another one ({some}); such a run no longer counts once its last effect is older than "
        "--older-than"
    )


def _sweep_artifacts(session: Session, ledger: Ledger, found: Found, swept: Swept) -> None:
    roots, names = set(found.artifacts), found.names
    for text in ledger.texts():
        roots |= hashes_in(text.encode(), names)
    for path in filter(Path.is_file, session.archive.root.glob("*/*")):
        roots |= hashes_in(path.read_bytes(), names)
    for data in prepared(session.artifacts.root, datetime.now(UTC)):
        roots |= hashes_in(data, names)
    marked = reachable(roots, lambda name: content(session.artifacts, name), names)
    swept.artifacts_kept = len(marked)
    limit = time.time() - YOUNG.total_seconds()
    for name in names - marked:
        size = _removable_bytes(session.artifacts, name, limit, swept)
        swept.artifacts += size is not None
        swept.artifacts_young += size is None
        swept.artifact_bytes += size or 0


def _removable_bytes(artifacts: ArtifactStore, name: str, limit: float, swept: Swept) -> int | None:
    """Remove an artifact, or only look where it is a dry run; return its size, None where it stays."""
    path = artifacts.path(name)
    try:
        known = path.stat()
        if known.st_mtime >= limit:
            return None
        if not swept.dry_run and not artifacts.remove(name, limit) and path.exists():
            return None
    except FileNotFoundError:
        return None
    except OSError as error:
        swept.problems.append(f"{path}: {error.strerror}")
        return None
    return known.st_size


def _ends(rows: list[RunRow], artifacts: ArtifactStore, folders: frozenset[str]) -> dict[str, datetime]:
    """Return when the run of each workspace ended, as far as that is recorded; the latest run counts."""
    ends: dict[str, datetime] = {}
    for row in rows:
        ended = datetime.fromisoformat(row.ended_at)
        for name in workspaces_in(content(artifacts, row.state.sha256), folders):
            ends[name] = max(ended, ends.get(name, ended))
    return ends


def _sweep_logs(settings: Settings, limit: datetime, swept: Swept) -> None:
    if supervisor_of(settings) or server_of(settings) or worker_of(settings):
        return  # they hold their logs open
    for path in sorted(settings.logs_dir.glob("*.log*")):
        if _touched(path) < limit and _remove(path, swept):
            swept.logs.append(path.name)


def _sweep_leftovers(settings: Settings, limit: datetime, swept: Swept) -> None:
    """Remove what killed processes have left half-made."""
    left = [*settings.artifacts_dir.glob("*/.*"), *settings.workspaces_dir.glob(".opening/*")]
    for path in left:
        if path.exists() and _touched(path) < limit:
            _remove(path, swept)
    for path in forgotten(settings.artifacts_dir, datetime.now(UTC)):
        _remove(path, swept)


def _remove(path: Path, swept: Swept) -> bool:
    """Remove a file or folder unless it is a dry run; return whether it is gone or would be."""
    if swept.dry_run:
        return True
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        swept.problems.append(f"{path}: {error.strerror or error}")
        return False
    return True


def _touched(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _lines(swept: Swept) -> Iterator[str]:
    verb = "would remove" if swept.dry_run else "removed"
    size = f"{swept.artifact_bytes / 1e6:,.1f} MB"
    kept = f"{swept.artifacts_kept} are needed, {swept.artifacts_young} were put within the last day"
    if swept.recorded:
        yield f"recorded     {counted(len(swept.recorded), 'task')} that had ended without a record" + _names(
            swept.recorded
        )
    yield f"artifacts    {verb} {swept.artifacts} ({size}); {kept}" if not swept.held_back else swept.held_back
    yield f"workspaces   {verb} {len(swept.workspaces)}" + _names(swept.workspaces)
    yield f"logs         {verb} {len(swept.logs)}" + _names(swept.logs)
    yield from (f"could not be removed: {problem}" for problem in swept.problems)


def _names(names: list[str]) -> str:
    return "".join(f"\n  {name}" for name in names)
