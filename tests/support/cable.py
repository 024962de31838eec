"""A cable between a client and PostgreSQL that breaks at the worst moment: after a commit, before its answer."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

HOST = "127.0.0.1"


@dataclass
class Cable:
    """Passes everything on, until it is told to lose the answer of the next commit; that connection is then broken."""

    port: int
    """Where clients connect."""
    lose_next: threading.Event = field(default_factory=threading.Event)
    """Set it to lose the answer of the next commit; it is cleared when that has happened."""


@contextlib.contextmanager
def breaking_cable(server_port: int) -> Iterator[Cable]:
    """Lay a cable to a server on this machine for the length of a block."""
    with socket.create_server((HOST, 0)) as listener:
        cable = Cable(listener.getsockname()[1])
        threads: list[threading.Thread] = []
        accepting = threading.Thread(target=_accept, args=(listener, server_port, cable, threads))
        accepting.start()
        try:
            yield cable
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for thread in (accepting, *threads):
                thread.join()


def _accept(listener: socket.socket, server_port: int, cable: Cable, threads: list[threading.Thread]) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        server = socket.create_connection((HOST, server_port))
        thread = threading.Thread(target=_serve, args=(client, server, cable))
        threads.append(thread)
        thread.start()


def _serve(client: socket.socket, server: socket.socket, cable: Cable) -> None:
    losing = threading.Event()

    def answers() -> None:
        with contextlib.suppress(OSError):
            while (data := server.recv(65_536)) and not losing.is_set():
                client.sendall(data)
        _break(client, server)

    with client, server:
        back = threading.Thread(target=answers)
        back.start()
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                if b"COMMIT\0" in data and cable.lose_next.is_set():
                    cable.lose_next.clear()
                    losing.set()
                server.sendall(data)
        if not losing.is_set():
            _break(client, server)
        back.join()


def _break(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
