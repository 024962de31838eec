"""The command line of a command in its workspace: isolated by bubblewrap, or not at all."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from schemas.errors import SandboxUnavailable
from schemas.workspace import WorkspaceKind, WorkspaceLimits, WorkspaceRef
from stores.sandbox_probe import find_bubblewrap, isolation, sandbox_path

SANDBOX_FOLDER = "/workspace"
_LOCAL_VARIABLES = (  # a worker's environment holds keys; a command gets what programs need to run, and no more
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
_EVERYWHERE = {"PYTHONDONTWRITEBYTECODE": "1"}  # a stale .pyc hides an edit of the same size in the same second


@dataclass(frozen=True)
class Command:
    """What a guard is to start."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    timeout_seconds: float
    limits: Mapping[str, int] = field(default_factory=dict)
    """Resource limits by the guard's names, in bytes and seconds."""


def shell_command(
    workspace: WorkspaceRef, root: Path, line: str, timeout_seconds: float, env: Mapping[str, str] | None = None
) -> Command:
    """Return the command that runs ``line`` with ``sh -c`` in the workspace. Raises SandboxUnavailable."""
    extra = {**_EVERYWHERE, **(env or {})}
    if workspace.kind is WorkspaceKind.LOCAL:
        kept = {name: os.environ[name] for name in _LOCAL_VARIABLES if name in os.environ}
        return Command(("/bin/sh", "-c", "--", line), str(root), {**kept, **extra}, timeout_seconds)
    bubblewrap = find_bubblewrap()
    if bubblewrap is None:
        raise SandboxUnavailable("bubblewrap (bwrap) is not installed")
    options = [*isolation(), "--bind", str(root), SANDBOX_FOLDER, "--remount-ro", "/", "--chdir", SANDBOX_FOLDER]
    argv = (bubblewrap, *options, "--", *_process_limit(workspace.limits), "/bin/sh", "-c", "--", line)
    inside = {"PATH": sandbox_path(), "HOME": "/tmp", "LANG": "C.UTF-8", **extra}
    return Command(argv, "/", inside, timeout_seconds, _limits(workspace.limits))


def _limits(limits: WorkspaceLimits) -> dict[str, int]:
    return {"as": limits.memory_mb * 2**20, "cpu": limits.cpu_seconds, "fsize": limits.file_mb * 2**20}


def _process_limit(limits: WorkspaceLimits) -> tuple[str, ...]:
    """Limit the processes from inside the sandbox, whose user namespace counts only its own.

    The kernel exempts root from this limit: a worker that runs as root needs a cgroup for it.
    """
    prlimit = shutil.which("prlimit", path="/usr/bin:/bin")
    return () if prlimit is None or os.geteuid() == 0 else (prlimit, f"--nproc={limits.processes}")
