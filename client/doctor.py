"""`surefoot doctor`: what works on this machine, and the command that mends what does not."""

import asyncio
import importlib.util
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass

from sqlalchemy.exc import SQLAlchemyError
from temporalio.client import Client

from client.builds import make_current, needed_builds, not_current, polling
from client.embedded import child_environment, server_of
from client.session import open_client, polled
from schemas.contract import workspace_queue
from schemas.errors import LedgerUnavailable, SecretUnresolved, StorageUnavailable
from schemas.outcome import EXIT_PREREQUISITE, EXIT_VERIFIED
from schemas.workspace import WorkspaceKind
from stores.artifacts import ArtifactStore
from stores.database import DatabaseRefused, shown
from stores.files import make_private
from stores.identity import StoresDiffer, known_stores, refuse_other_stores
from stores.ledger import Ledger
from stores.model_prices import key_variable
from stores.own_server import names_own_server
from stores.sandbox_probe import probe_sandbox
from stores.secrets import worker_secrets
from stores.settings import HOME_FILE, Settings
from stores.temporal import ServerUnreachable
from stores.tracing import TelemetryUnavailable, can_trace

OK, WARN, FAIL = "ok", "warn", "fail"
LEAST_FREE_BYTES = 1_000_000_000
LEAST_PYTHON = (3, 11)
PROGRAM_SECONDS = 60


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    status: str
    """``ok``; ``warn``: works without it, with less; ``fail``: must be mended."""
    name: str
    """What."""
    detail: str
    """What was found."""
    mend: str = ""
    """The command that mends it."""


def doctor(settings: Settings, as_json: bool) -> int:
    """Print every finding; exit code 6 where something must be mended."""
    worst = EXIT_VERIFIED
    for finding in _findings(settings):
        if as_json:
            print(json.dumps(asdict(finding), ensure_ascii=False), flush=True)
        else:
            mend = f"\n     → {finding.mend}" if finding.mend else ""
            print(f"{finding.status:<4} {finding.name:<10} {finding.detail}{mend}", flush=True)
        if finding.status == FAIL:
            worst = EXIT_PREREQUISITE
    return worst


def _findings(settings: Settings) -> Iterator[Finding]:
    yield _python()
    yield _home(settings)
    yield _database(settings)
    stores = yield from _stores(settings)
    yield _program(settings)
    yield _sandbox()
    yield _adapter()
    yield from _tiers(settings)
    yield from _secrets(settings)
    yield from _telemetry(settings)
    yield from _server(settings, stores)


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    fine = sys.version_info[:2] >= LEAST_PYTHON
    return Finding(
        OK if fine else FAIL, "python", version, "" if fine else "install Python 3.11 or newer; `make setup`"
    )


def _home(settings: Settings) -> Finding:
    try:
        make_private(settings.home)
        with tempfile.TemporaryFile(dir=settings.home):
            free = shutil.disk_usage(settings.home).free
            open_to_others = settings.home.stat().st_mode & stat.S_IRWXO
    except (OSError, StorageUnavailable) as error:
        found = f"{settings.home}: {getattr(error, 'strerror', error)}"
        return Finding(FAIL, "home", found, "set SUREFOOT_HOME to a folder you may write")
    detail = f"{settings.home}, {free / 1e9:.1f} GB free"
    if free < LEAST_FREE_BYTES:
        return Finding(WARN, "home", detail, f"make room, or set SUREFOOT_HOME elsewhere; df -h {settings.home}")
    if open_to_others:
        what = f"{detail}; every user of this machine may read it, with histories, logs and the key that signs claims"
        return Finding(WARN, "home", what, f"chmod o= {settings.home}")
    return Finding(OK, "home", detail)


def _database(settings: Settings) -> Finding:
    name = shown(settings.database_url)
    try:
        ledger = Ledger(settings.database_url)
        rows = ledger.runs(1)
        ledger.check(writing=True)
    except DatabaseRefused as error:  # it says itself what to do
        return Finding(FAIL, "database", str(error))
    except (LedgerUnavailable, SQLAlchemyError, OSError) as error:
        ours = settings.database_url.startswith("sqlite:")
        mend = "or move the file away" if ours else "or start that database and let this user in"
        return Finding(FAIL, "database", str(error), f"set SUREFOOT_DATABASE_URL, {mend}")
    return Finding(OK, "database", name + ("" if rows else ", no ended runs yet"))


def _stores(settings: Settings) -> Generator[Finding, None, str | None]:
    """Say which ledger with which artifacts this is, and return their name; None where they cannot be used."""
    try:
        stores = known_stores(settings, Ledger(settings.database_url), ArtifactStore(settings.artifacts_dir))
    except (LedgerUnavailable, DatabaseRefused, SQLAlchemyError, OSError):
        return None  # told of the database
    except (StoresDiffer, StorageUnavailable) as error:
        yield Finding(FAIL, "stores", str(error), f"ls -l {settings.artifacts_dir}")
        return None
    yield Finding(OK, "stores", f"{stores}: this database with {settings.artifacts_dir}")
    return stores


def _program(settings: Settings) -> Finding:
    command = [sys.executable, "-m", "workers.server"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PROGRAM_SECONDS,
            env=child_environment(settings),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finding(FAIL, "temporal", f"no answer within {PROGRAM_SECONDS} s", "make setup")
    if done.returncode:
        return Finding(FAIL, "temporal", (done.stderr.strip().splitlines() or ["does not run"])[-1], "make setup")
    found = json.loads(done.stdout)
    return Finding(OK, "temporal", f"{found['version']} at {found['program']}")


def _sandbox() -> Finding:
    reason = probe_sandbox()
    if reason is None:
        return Finding(OK, "sandbox", "bubblewrap isolates commands")
    mend = "apt-get install bubblewrap; until then `workspace: {kind: local}` runs commands without isolation"
    return Finding(WARN, "sandbox", reason, mend)


def _adapter() -> Finding:
    if importlib.util.find_spec("litellm") is None:
        return Finding(WARN, "litellm", "not installed: only rehearsed models can answer", "make setup")
    return Finding(OK, "litellm", "installed")


def _tiers(settings: Settings) -> Iterator[Finding]:
    for tier, entry in settings.tiers.items():
        name = entry.api_key_env or (None if entry.api_base else key_variable(entry.model))
        if name and not os.environ.get(name):
            yield Finding(FAIL, tier.value, f"{entry.model}: {name} is not set", f"export {name}=…")
        else:
            yield Finding(OK, tier.value, entry.model + (f", key in {name}" if name else ""))


def _secrets(settings: Settings) -> Iterator[Finding]:
    """Say of each secret whether it resolves here; its value is neither shown nor measured."""
    secrets = worker_secrets(settings)
    for problem in secrets.unmasked:
        yield Finding(WARN, "secret", problem.split("; ")[0], problem.split("; ")[1])
    for name in secrets.names:
        try:
            secrets.resolve([name])
        except SecretUnresolved as error:
            mend = f"[secrets.{name}] in {settings.home / HOME_FILE}; tasks that name it end as FAILED until then"
            yield Finding(WARN, "secret", str(error).removeprefix("secret "), mend)
        else:
            yield Finding(OK, "secret", f"{name} resolves here; a running worker has the environment it was started in")


def _telemetry(settings: Settings) -> Iterator[Finding]:
    """Say where traces and metrics go, where they go anywhere."""
    said = settings.telemetry
    if said.otlp_endpoint and not can_trace():
        found = "telemetry.otlp_endpoint is set, and OpenTelemetry is not installed: no worker and no command starts"
        yield Finding(FAIL, "traces", found, "make setup")
    elif said.otlp_endpoint:
        yield Finding(OK, "traces", f"to {said.otlp_endpoint}" + (", with content" if said.content else ""))
    if said.prometheus:
        yield Finding(OK, "metrics", f"of a worker that has these settings, on http://{said.prometheus}/metrics")


def _server(settings: Settings, stores: str | None) -> list[Finding]:
    if not names_own_server() and server_of(settings) is None:
        return [Finding(WARN, "server", "the embedded server is not running; `run` starts it", "surefoot up")]
    try:
        return asyncio.run(_connected(settings, stores))
    except ServerUnreachable as error:
        found = f"no Temporal server at {error.address}: {error.reason}"
        return [Finding(FAIL, "server", found, error.remedy)]
    except TelemetryUnavailable as error:
        return [Finding(FAIL, "server", f"was not asked: {error}", "make setup")]


async def _connected(settings: Settings, stores: str | None) -> list[Finding]:
    client = await open_client(settings)
    findings = [Finding(OK, "server", f"{client.service_client.config.target_host}, namespace {client.namespace}")]
    prefix, host = settings.queue_prefix, socket.gethostname()
    for queue in (prefix, *(workspace_queue(prefix, kind.value, host) for kind in WorkspaceKind)):
        if await polled(client, queue, activities=queue != prefix):
            findings.append(Finding(OK, "worker", f"polls {queue}"))
        else:
            status = FAIL if queue == prefix else WARN  # no task goes on without; a workspace may be on another host
            mend = "surefoot worker" if names_own_server() else "surefoot up"
            findings.append(Finding(status, "worker", f"none polls {queue}", mend))
    try:
        if stores is not None:
            await refuse_other_stores(client, settings, stores)
    except StoresDiffer as error:
        findings.append(Finding(FAIL, "stores", str(error), "end the worker that uses the wrong ones"))
    return [*findings, *await _builds(client, prefix)]


async def _builds(client: Client, queue: str) -> list[Finding]:
    """Say which builds of versioned workers poll, and which of them do not fit what tasks need."""
    by, needed = await polling(client, queue), await needed_builds(client, queue)
    findings = [Finding(OK, "build", f"{build} polls {queue}") for build in sorted(by.builds)]
    if by.waiting_to_be_current:
        findings.append(Finding(WARN, "build", not_current(by), make_current(client, by.waiting_to_be_current)))
    for build in sorted(needed.keys() - by.builds):
        mend = "start a worker of that build; `surefoot show` of such a task says how it gets off it"
        what = f"none of {build} polls {queue}, and {needed[build]} open task(s) stay on it"
        findings.append(Finding(WARN, "build", what, mend))
    return findings
