"""A real PostgreSQL for tests: Debian's programs, a folder and a port of its own, killable and startable again."""

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from stores.running import process_of
from tests.support.processes import eventually

HOST = "127.0.0.1"
USER = "surefoot"
PASSWORD = "correct-horse-battery"
STARTING_SECONDS = 60
RELAXED = ("fsync=off", "full_page_writes=off", "shared_buffers=32MB", "max_connections=100")


class PostgresServer:
    """One server; ``kill`` is a SIGKILL of all of it, ``start`` brings it back on the same folder and address."""

    def __init__(self, listens_on: str = HOST) -> None:
        self._programs = _programs()
        self._folder = Path(tempfile.mkdtemp(prefix="surefoot-postgres-"))
        self._as_user = _unprivileged(self._folder)
        self._names = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._listens_on = listens_on
        self.port = _free_port()
        self._initialize()

    def _initialize(self) -> None:
        password = self._folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        command: list[str | Path] = [
            self._programs / "initdb",
            "--pgdata",
            self._folder / "data",
            "--username",
            USER,
            "--no-sync",
        ]
        command += ["--encoding", "UTF8", "--locale", "C.UTF-8", "--auth", "scram-sha-256", "--pwfile", password]
        self._run(*command)
        with (self._folder / "data" / "pg_hba.conf").open("a") as rules:
            rules.write("host all all all scram-sha-256\n")

    def _run(self, *command: str | Path) -> None:
        done = subprocess.run([*self._as_user, *map(str, command)], cwd="/", capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        """Start it, and wait until it lets somebody in."""
        command: list[str | Path] = [self._programs / "postgres", "-D", self._folder / "data", "-h", self._listens_on]
        command += ["-p", str(self.port), "-k", self._folder]
        for setting in RELAXED:
            command += ["-c", setting]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._as_user, *map(str, command)], cwd="/", stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + STARTING_SECONDS
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=2).close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self._folder / "log").read_text()[-3000:]
                assert time.monotonic() < deadline
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """End every process of it with SIGKILL, as a power cut would."""
        if self._process is None or self._process.poll() is not None:
            return
        all_of_it = [self._process.pid, *_children(self._process.pid)]
        for pid in all_of_it:  # in this order: it would start what has ended anew
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        assert eventually(lambda: not any(process_of(pid) for pid in all_of_it))

    def stop(self) -> None:
        """Stop it at once, in good order for a database: every connection is broken, nothing is written any more."""
        assert self._process is not None
        self._run(self._programs / "pg_ctl", "stop", "-D", self._folder / "data", "-m", "immediate")
        self._process.wait()

    def remove(self) -> None:
        """End it and remove its files."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, database: str) -> str:
        """Return the address of a database, with its password."""
        return f"postgresql://{USER}:{PASSWORD}@{HOST}:{self.port}/{database}"

    def fresh(self, **options: str) -> str:
        """Make an empty database and return its address; ``options`` are those of CREATE DATABASE."""
        name = f"test_{next(self._names)}"
        more = "".join(f" {option} {value}" for option, value in options.items())
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}{more}".encode())
        return self.url(name)


@contextlib.contextmanager
def running_postgres(listens_on: str = HOST) -> Iterator[PostgresServer]:
    """Run a server for the length of a block."""
    server = PostgresServer(listens_on)
    try:
        server.start()
        yield server
    finally:
        server.remove()


def _programs() -> Path:
    """Return the newest of Debian's folders, or the one on PATH; a test that needs it fails where there is none."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("postgres")
    found = [*([Path(on_path)] if on_path else []), *debian]
    if not found:
        pytest.fail("no PostgreSQL programs; run `sh deploy/system-packages.sh test`")
    return found[-1].parent


def _unprivileged(folder: Path) -> list[str]:
    """PostgreSQL refuses to run as root: give ``folder`` to its own user, and return how to become that one."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam("postgres")
    os.chown(folder, user.pw_uid, user.pw_gid)
    folder.chmod(0o755)
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--"]


def _children(parent: int) -> list[int]:
    """Return the processes that ``parent`` has started: each leads a group of its own."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == parent:
                    found.append(int(folder.name))
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
