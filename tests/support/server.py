"""A real Temporal dev server for tests: its own process, its own file, killable and startable again."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from stores.running import SERVER_FILE, ServerRecord, process_of, write_record
from stores.settings import Settings, read_settings
from stores.temporal import ServerUnreachable, connect
from workers.server import HOST, choose_ports, find_server, server_command

PATIENCE_SECONDS = 30


class DevServer:
    """One dev server on one home; ``kill`` is a SIGKILL, ``start`` brings it back on the same address and file."""

    def __init__(self, home: Path, ip: str = HOST, *, server_flags: Sequence[str] = (), **flags: Any) -> None:
        self.settings = settings_of(home, **flags)
        self._ip = ip
        self._server_flags = server_flags
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; clients wait until it serves."""
        self.settings.run_dir.mkdir(parents=True, exist_ok=True)
        ports = choose_ports(self.settings.run_dir)
        command = [*server_command(find_server(self.settings), self.settings, ports), *self._server_flags]
        command[command.index("--ip") + 1] = self._ip
        with (self.settings.home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        process = process_of(self._process.pid)
        assert process is not None
        address, ui = f"{HOST}:{ports.grpc}", f"http://{HOST}:{ports.ui}"
        write_record(self.settings.run_dir / SERVER_FILE, ServerRecord(address=address, ui_address=ui, process=process))

    def kill(self) -> None:
        """End it with SIGKILL."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def settings_of(home: Path, **flags: Any) -> Settings:
    """Return the settings of a home, with nothing from this machine's environment."""
    return read_settings({"home": home, **flags}, {}, home)


@contextlib.contextmanager
def running_server(home: Path, *, server_flags: Sequence[str] = (), **flags: Any) -> Iterator[DevServer]:
    """Run a server for the length of a block; ``flags`` are settings, such as the ledger's database."""
    server = DevServer(home, server_flags=server_flags, **flags)
    server.start()
    try:
        yield server
    finally:
        server.kill()


async def client_of(settings: Settings) -> Client:
    """Connect as the product does, patiently: the server may just have started."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            client = await connect(settings)
            await client.count_workflows()
        except (ServerUnreachable, RPCError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)
        else:
            return client
