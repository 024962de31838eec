"""Finds processes by a word in their command line, and waits for what other processes do."""

import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path


def processes_with(token: str) -> list[int]:
    """Return the pids of living processes whose command line holds ``token``, of whatever pid namespace."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it may end while it is looked at
                # a zombie has no command line
                if token.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
    return found


def eventually(condition: Callable[[], object], seconds: float = 30) -> bool:
    """Wait until ``condition`` holds; False where it still does not after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def free_port() -> int:
    """Return a port of this host that nobody listens on."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


def stubborn_tree(token: str, ready: str) -> str:
    """Return a command line that starts what is hard to end, and waits.

    A child in its own session, a grandchild that two parents have left behind, and one that ignores every signal that
    can be ignored; all carry ``token`` and live for ten minutes. The file ``ready`` is written once all are there.
    """
    daemon = (
        "import os, signal, sys, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "[signal.signal(n, signal.SIG_IGN) for n in range(1, 65) if n not in (9, 19, 32, 33)]\n"
        "open(sys.argv[2], 'w').close()\n"
        "time.sleep(600)\n"
    )
    return (
        f"setsid sh -c 'sleep 600; : {token}' & "
        f'python3 -c "{daemon}" {token} {ready}; '
        f"while ! [ -e {ready} ]; do sleep 0.02; done; "
        f"sh -c 'sleep 600; : {token}'; echo after > after"
    )
