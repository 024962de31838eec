"""Replays recorded histories: ``python -m tests.support.replay FOLDER [--broken]``, in a process of its own.

Prints one line of JSON for each history: its name, and the failure or null. ``--broken`` replays them with a workflow
whose code was changed carelessly, which must not go unnoticed.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.common import RawValue
from temporalio.worker import Replayer

from schemas.contract import TASK_WORKFLOW
from schemas.state import TaskResult
from stores.artifacts import ArtifactStore
from stores.temporal import surefoot_plugin
from workflows.agent_task import AgentTask


@workflow.defn(name=TASK_WORKFLOW)
class CarelessTask(AgentTask):
    """AgentTask with one more look at the start: a change that breaks every history that was recorded before."""

    @workflow.init
    def __init__(self, raw: RawValue) -> None:
        super().__init__(raw)

    @workflow.run
    async def run(self, raw: RawValue) -> TaskResult:
        await workflow.sleep(1)
        return await super().run(raw)


async def replay(paths: list[Path], broken: bool) -> None:
    """Replay these histories."""
    with tempfile.TemporaryDirectory() as empty:
        replayer = Replayer(
            workflows=[CarelessTask if broken else AgentTask], plugins=[surefoot_plugin(ArtifactStore(Path(empty)))]
        )
        for path in paths:
            history = WorkflowHistory.from_json(path.stem, path.read_text())
            result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
            failure = str(result.replay_failure) if result.replay_failure else None
            sys.stdout.write(json.dumps({"name": path.stem, "failure": failure}) + "\n")


if __name__ == "__main__":
    asyncio.run(replay(sorted(Path(sys.argv[1]).glob("*.json")), "--broken" in sys.argv))
