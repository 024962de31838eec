"""Whether bubblewrap works on this machine, and the isolation that is asked of it."""

import shutil
import subprocess
import sys
from pathlib import Path

PROBE_SECONDS = 10
BASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SYSTEM_FILES = (  # what a program needs to start and to speak its language; no names, no hosts, no secrets
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/ssl/certs",
)


def isolation() -> list[str]:
    """Return bubblewrap's options for a sandbox without a workspace.

    Own user, process, network, IPC, host name and cgroup namespaces, and no more of them inside; no capability; a
    read-only system, ``/proc`` and ``/dev``; an own and empty ``/tmp`` and ``/dev/shm``; it dies with its parent and
    has no terminal. Needs bubblewrap 0.8.
    """
    options = ["--unshare-user", "--unshare-all", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
    options += ["--disable-userns"]
    options += ["--die-with-parent", "--new-session", "--hostname", "sandbox", "--ro-bind", "/usr", "/usr"]
    for folder in map(Path, _SYSTEM_FOLDERS):
        if folder.is_symlink():
            options += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.is_dir():
            options += ["--ro-bind", str(folder), str(folder)]
    for name in _SYSTEM_FILES:
        options += ["--ro-bind-try", name, name]
    options += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/dev/shm", "--tmpfs", "/tmp"]
    # a worker that runs as root owns the files below /proc/sys, capabilities or not: they are the host's settings
    options += ["--remount-ro", "/proc", "--remount-ro", "/dev"]
    python = own_python()
    return [*options, "--ro-bind", python, python] if python else options


def own_python() -> str | None:
    """Return the folder of this interpreter where it is not part of ``/usr``, so that a sandbox can have Python too."""
    folder = Path(sys.base_prefix).resolve()
    return None if folder.is_relative_to("/usr") else str(folder)


def sandbox_path() -> str:
    """Return the sandbox's ``PATH``: the system's folders, and this interpreter's where it is elsewhere."""
    python = own_python()
    return f"{BASE_PATH}:{python}/bin" if python else BASE_PATH


def find_bubblewrap() -> str | None:
    """Return bubblewrap's full path, or None."""
    return shutil.which("bwrap")


def probe_sandbox() -> str | None:
    """Make a sandbox that runs ``true``; return None where it works, else the reason in a line."""
    bubblewrap = find_bubblewrap()
    if bubblewrap is None:
        return "bubblewrap (bwrap) is not installed"
    command = [bubblewrap, *isolation(), "--remount-ro", "/", "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{bubblewrap} does not run: {error}"
    if done.returncode == 0:
        return None
    return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"{bubblewrap} ends with {done.returncode}"
