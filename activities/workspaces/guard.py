"""The guard: owns one command, and ends everything that the command started.

Run as ``python -I -S guard.py``, standard library only. It waits on its standard input for one line of JSON, the
order; nothing has happened before. From then on any input, or the end of it, means "end the command": the worker
holds the other side, so a worker that dies in whatever way takes its commands with it. The command's output goes
to the guard's standard output, the guard's report (one line of JSON) to its standard error.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILL_SECONDS = 10.0
EXEC_FAILED = 127
LIMITS = {"as": resource.RLIMIT_AS, "cpu": resource.RLIMIT_CPU, "fsize": resource.RLIMIT_FSIZE}


def parent_and_start(pid: int) -> tuple[int, int] | None:
    """Return the parent's pid and the start time in ticks of a process, or None where it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib doubles the guard's start-up time
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[19]))


def descendants(root: int) -> list[int]:
    """Return the living processes below ``root``, nearest first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - see above
        if name.isdigit() and (found := parent_and_start(int(name))):
            children.setdefault(found[0], []).append(int(name))
    below: list[int] = []
    queue = [root]
    while queue:
        below += (born := children.get(queue.pop(0), []))
        queue += born
    return below


def kill_descendants(root: int, seconds: float = KILL_SECONDS) -> int:
    """Kill everything below ``root`` until nothing is left; return how many could not be killed in time."""
    deadline = time.monotonic() + seconds
    while True:
        left = descendants(root)
        if not left or time.monotonic() > deadline:
            return len(left)
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if root == os.getpid():
            _reap()
        time.sleep(0.005)


def _reap() -> dict[int, int]:
    """Collect the children that have ended, adopted ones too; return their exit codes."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            code = os.waitstatus_to_exitcode(status)
            ended[pid] = code if code >= 0 else 128 - code
    return ended


def _read_order() -> dict | None:  # type: ignore[type-arg]  # checked by whoever wrote it
    data = b""
    while not data.endswith(b"\n"):
        chunk = os.read(0, 65536)
        if not chunk:
            return None
        data += chunk
    return json.loads(data)  # type: ignore[no-any-return]


def _start(order, libc) -> int:  # type: ignore[no-untyped-def]
    """Start the command in a session of its own, and return its pid."""
    guard = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        # a guard that is killed itself takes at least its nearest child along, and with it a whole sandbox
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:
            os._exit(EXEC_FAILED)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # what the guard ignores the command would ignore, too
        os.umask(0o022)
        os.chdir(order["cwd"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(1, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for name, value in order["limits"].items():
            _, most = resource.getrlimit(LIMITS[name])
            value = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.setrlimit(LIMITS[name], (value, value))
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except BaseException as error:
        os.write(1, f"cannot start {order['argv'][0]}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(EXEC_FAILED)


def _watch(child: int, wakeup: int, timeout_seconds: float) -> tuple[str, int | None]:
    """Wait for the command's end, the time limit, or a word from the worker; return which it was, and the exit code."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return "timed_out", None
        ready, _, _ = select.select([0, wakeup], [], [], remaining)
        if wakeup in ready and signal.SIGTERM in os.read(wakeup, 4096):
            return "stopped", None
        ended = _reap()
        if child in ended:
            return "exited", ended[child]
        if 0 in ready:
            return "stopped", None


def main() -> None:
    """Wait for the order, run it, end what is left of it, report."""
    libc = ctypes.CDLL(None)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("this kernel has no child subreaper")
    wakeup, written = os.pipe()
    os.set_blocking(written, False)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    order = _read_order()
    if order is None:
        return
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    ending, exit_code = _watch(_start(order, libc), wakeup, order["timeout_seconds"])
    left = kill_descendants(os.getpid())
    os.write(2, json.dumps({"ending": ending, "exit_code": exit_code, "left": left}).encode() + b"\n")


if __name__ == "__main__":
    main()
