"""Where a bench happens: a server and a home of its own, workers that play, and tasks for them."""

import asyncio
import contextlib
import signal
import tempfile
import uuid
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from temporalio.client import Client

from bench.gateway import MODEL, Play
from bench.marks import Mark, read_marks
from schemas.contract import WORKFLOW_TASK_TIMEOUT_SECONDS
from schemas.models import ModelChoice, Tier
from schemas.task import Bounds, TaskSpec
from schemas.workspace import WorkspaceKind
from stores.running import SERVER_FILE, ServerRecord, read_record
from stores.settings import Settings
from tests.proof.bench import serving_home
from tests.support.server import client_of
from tests.support.tasks import PRICE, WorkerProcess, file_requirement, task_spec, workspace_spec

Result = TypeVar("Result")

STEPS_OF_A_PLAN = 10
GOAL = (
    "Keep notes of everything that you look at, part by part, in the file notes.txt. Every part is written on its own, "
    "with a line that no other part has, and is looked at again after it was written: the list of files must show the "
    "new size, and the difference must show the line. Do not change any other file, do not remove what earlier parts "
    "have found out, and do not put more than one part into one step. The notes are finished when the file never.txt "
    "is there, which somebody else makes; until then go on with the next part, and plan again where a plan is done."
)


class Setting:
    """One server on one home."""

    def __init__(self, settings: Settings) -> None:
        """Use a home whose server runs."""
        self.settings = settings
        record = read_record(settings.run_dir / SERVER_FILE, ServerRecord)
        assert record is not None, "the server has just answered"
        self.server_pid = record.process.pid

    @contextlib.contextmanager
    def worker(self, name: str = "product", module: str = "bench.worker", **play: Any) -> Iterator["PlayedWorker"]:
        """Run a worker for the length of a block; its marks are under its name."""
        running = PlayedWorker(self, name, module, play)
        running.start()
        try:
            yield running
        finally:
            running.process.kill()

    def work(self, coroutine: Callable[[Client], Coroutine[Any, Any, Result]]) -> Result:
        """Run ``coroutine`` with a client."""

        async def go() -> Result:
            return await coroutine(await client_of(self.settings))

        return asyncio.run(go())

    def task(self, versions: int, **changes: Any) -> TaskSpec:
        """Return a task that goes on until it has used up its plan versions."""
        choice = ModelChoice(model=MODEL, price=PRICE)
        fields: dict[str, Any] = {
            "goal": GOAL,
            "models": dict.fromkeys(Tier, choice),
            "requirements": (file_requirement("never.txt"),),
            "bounds": Bounds(max_plan_versions=versions),
            "workspace": workspace_spec(self.settings, WorkspaceKind.LOCAL),
            **changes,
        }
        return task_spec(self.settings, choice, **fields)


class PlayedWorker:
    """A worker process that plays, and can be killed and started again."""

    def __init__(self, setting: Setting, name: str, module: str, play: dict[str, Any]) -> None:
        """Prepare it; nothing runs yet."""
        self._setting, self._module = setting, module
        self.marks_path = setting.settings.home / f"marks-{name}.jsonl"
        self._play = Play(marks=str(self.marks_path), server_pid=setting.server_pid, **play).model_dump_json()

    def start(self) -> None:
        """Start it, and wait until it polls."""
        self.process = WorkerProcess(self._setting.settings, module=self._module, BENCH=self._play)

    def marks(self, workflow_id: str = "") -> list[Mark]:
        """Return what it has noted."""
        return read_marks(self.marks_path, workflow_id)


@contextlib.contextmanager
def setting() -> Iterator[Setting]:
    """Run a server on a new home for the length of a block, and leave nothing behind, not even after a SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="surefoot-bench-") as home, serving_home(Path(home)) as server:
        yield Setting(server.settings)


async def start_bare(client: Client, task: Any, queue: str) -> str:
    """Run a bare workflow to its end and return its id; started with the time-out of the product's."""
    workflow_id = f"bare-{uuid.uuid4().hex[:12]}"
    timeout = timedelta(seconds=WORKFLOW_TASK_TIMEOUT_SECONDS)
    await client.execute_workflow("Bare", task, id=workflow_id, task_queue=queue, task_timeout=timeout)
    return workflow_id
