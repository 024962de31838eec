"""Tasks with a rehearsed script, and worker processes that serve them: everything but the model is the real part."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from schemas.checks import FileCheck, Requirement
from schemas.contract import workspace_queue
from schemas.models import ModelChoice, Node, Tier
from schemas.pricing import Price
from schemas.rehearsal import Rehearsal
from schemas.task import TaskSpec
from schemas.workspace import WorkspaceKind, WorkspaceSpec
from stores.artifacts import ArtifactStore
from stores.settings import Settings

PRICE = Price(input_microusd_per_mtok=3_000_000, output_microusd_per_mtok=15_000_000)
READY_SECONDS = 60


def reply(node: str, answer: Any, when: Sequence[str] = (), unless: Sequence[str] = ()) -> dict[str, Any]:
    """Return one entry of a script."""
    return {"node": node, "reply": answer, "when": list(when), "unless": list(unless)}


def plan(*titles: str) -> dict[str, Any]:
    """Return a plan's answer."""
    steps = [{"title": title, "instruction": title, "requirements": []} for title in titles]
    return {"why": "rehearsed", "steps": steps}


def commands(*lines: str, more: bool = False) -> dict[str, Any]:
    """Return a proposal of commands."""
    actions = [{"tool": "run", "arguments": {"command": line}} for line in lines]
    return {"thought": "rehearsed", "actions": actions, "more": more}


def verdict(result: bool, source: str = "", quote: str = "") -> dict[str, Any]:
    """Return a judge's answer."""
    citation = {"source": source, "quote": quote} if source else None
    return {"reason": "rehearsed", "citation": citation, "result": result}


def rehearsed_choice(
    artifacts: ArtifactStore, replies: list[dict[str, Any]], delay_seconds: float = 0.0
) -> ModelChoice:
    """Store a script and return the model that it is; what the script does not foresee is answered with nothing."""
    answered = [*replies, *(reply(node.value, "") for node in Node)]
    script = Rehearsal.model_validate_json(json.dumps({"replies": answered, "delay_seconds": delay_seconds}))
    return ModelChoice(model="rehearsed", price=PRICE, rehearsal=artifacts.put_text(script.stored().model_dump_json()))


def file_requirement(path: str, **more: Any) -> Requirement:
    """Return a requirement that a file exists."""
    check = FileCheck(kind="file", path=path, **more)
    return Requirement(id="done", text=f"{path} is there", check=check)


def workspace_spec(settings: Settings, kind: WorkspaceKind = WorkspaceKind.SANDBOX, **changes: Any) -> WorkspaceSpec:
    """Return a workspace on this host."""
    queue = workspace_queue(settings.queue_prefix, kind.value, socket.gethostname())
    return WorkspaceSpec(**{"kind": kind, "queue": queue, "files": {"readme.txt": "hello\n"}, **changes})


def task_spec(settings: Settings, choice: ModelChoice, **changes: Any) -> TaskSpec:
    """Return a task in a sandbox on this host."""
    fields: dict[str, Any] = {
        "name": "test",
        "goal": "Make the files",
        "requirements": (file_requirement("out.txt"),),
        "models": dict.fromkeys(Tier, choice),
        "tools": ("run", "write_file", "read_file", "edit_file"),
        "workspace": workspace_spec(settings),
    }
    return TaskSpec(**{**fields, **changes})


class WorkerProcess:
    """A worker in a process of its own."""

    def __init__(
        self,
        settings: Settings,
        *flags: str,
        module: str = "workers.main",
        inside: Sequence[str] = (),
        **environment: str,
    ) -> None:
        """Start it and wait until it polls; ``inside`` is a command that runs another one, in a namespace say."""
        self._log = settings.home / "worker.log"
        self.said: dict[str, Any] = {}  # its one line
        self.said_later = b""  # what came on its standard output after the one line that it may hold
        environ = {
            **os.environ,
            **environment,
            "SUREFOOT_HOME": str(settings.home),
            "SUREFOOT_DATABASE_URL": settings.database_url,
            "SUREFOOT_QUEUE_PREFIX": settings.queue_prefix,
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*inside, sys.executable, "-m", module, *flags], stdout=subprocess.PIPE, stderr=log, env=environ
            )
        self._wait_ready()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def _wait_ready(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._log.read_text()[-3000:]
        self.said = json.loads(line)
        assert self.said.get("ready"), self.said

    def kill(self) -> None:
        """SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self.wait()

    def stop(self) -> int:
        """SIGTERM, and wait for its end."""
        self.send(signal.SIGTERM)
        return self.wait()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def wait(self, seconds: float = 60) -> int:
        """Wait for its end, and return its exit code."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker still runs; its log ends with\n{self._log.read_text()[-5000:]}") from None
        assert self._process.stdout is not None
        if not self._process.stdout.closed:
            self.said_later = self._process.stdout.read()
            self._process.stdout.close()
        return code

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None


@contextlib.contextmanager
def worker(settings: Settings, *flags: str, **environment: str) -> Iterator[WorkerProcess]:
    """Run a worker for rehearsed models for the length of a block."""
    running = WorkerProcess(settings, "--without-litellm", *flags, **environment)
    try:
        yield running
    finally:
        running.kill()


def wait_until(condition: Any, seconds: float = 30, what: str = "it") -> None:
    """Wait until ``condition()`` is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.02)


def rehearsed_bill(settings: Settings) -> list[dict[str, Any]]:
    """Return the rehearsed model's own record: one entry for each request that it answered."""
    path = settings.rehearsed_record
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
