"""The commands about processes: up, down, worker."""

import json
import os
import sys

from client.embedded import check, child_environment, ensure_running, stop, worker_of
from client.problems import PrerequisiteError
from schemas.outcome import EXIT_VERIFIED
from stores.own_server import OWN_CONFIGURATION, names_own_server
from stores.settings import Settings


def up(settings: Settings, worker: bool, as_json: bool) -> int:
    """Start what is missing of the embedded server and say where it is."""
    if names_own_server():
        named = ", ".join(name for name in OWN_CONFIGURATION if os.environ.get(name))
        remedy = "run a worker for it with `surefoot worker`, or unset that to use the embedded server"
        raise PrerequisiteError(f"{named} names a Temporal server of its own: {remedy}")
    if worker:
        check(settings)
    server = ensure_running(settings, worker)
    running = worker_of(settings)
    if as_json:
        shown = {
            "address": server.address,
            "namespace": server.namespace,
            "page": server.ui_address,
            "queue": settings.queue_prefix,
            "worker": running.process.pid if running else None,
            "home": str(settings.home),
        }
        print(json.dumps(shown))
        return EXIT_VERIFIED
    print(f"server  {server.address} (namespace {server.namespace})")
    print(f"page    {server.ui_address}")
    print(f"worker  process {running.process.pid}" if running else "worker  none; `surefoot worker` runs one here")
    print(f"home    {settings.home}")
    return EXIT_VERIFIED


def down(settings: Settings) -> int:
    """Stop the embedded server with its worker; tasks go on at the next `up`."""
    stopped = stop(settings)
    print("stopped; unfinished tasks go on at the next `surefoot up`" if stopped else "nothing was running")
    return EXIT_VERIFIED


def worker(settings: Settings, role: str, queue_prefix: str | None, without_litellm: bool) -> int:
    """Become a worker process in the foreground."""
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, "-m", "workers.main", "--role", role]
    command += [f"--queue-prefix={queue_prefix}"] if queue_prefix is not None else []
    command += ["--without-litellm"] if without_litellm else []
    os.execve(sys.executable, command, child_environment(settings))
