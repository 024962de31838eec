"""The typed client: what the command line does, for programs in Python. Everything is asynchronous.

surefoot = await Surefoot.connect()
task = await surefoot.submit("scenarios/hello-file.yaml")
async for event in task.events():
    print(event.text)
end = await task.result()
print(end.outcome.label, end.result.workspace_root)
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from client.embedded import start_embedded
from client.follow import follow
from client.freezing import freeze
from client.problems import PrerequisiteError
from client.scenarios import load
from client.session import Session, check_stores, open_session
from client.submit import start
from client.telling import Answer, compose, deliver
from client.views import TaskView
from schemas.messages import SignalName
from schemas.scenario import ModelEntry
from schemas.state import AgentState, Event, Summary
from schemas.task import TaskSpec
from stores.records import RunRow
from stores.settings import Settings, load_settings


class Task:
    """One task, by its id: it need not have been started here, nor be running."""

    def __init__(self, session: Session, task_id: str) -> None:
        """Speak about ``task_id``; nothing is asked yet."""
        self._tasks = session.tasks
        self.id = task_id

    async def look(self) -> TaskView:
        """Return all that is known now. Raises UnknownTask, NotATask; RPCError where the server is down."""
        return await self._tasks.look(self.id)

    async def state(self) -> AgentState:
        """Return everything that the task remembers. Raises PrerequisiteError where nobody can say."""
        view = await self.look()
        if view.state is None:
            raise PrerequisiteError(f"{self.id}: {view.why_not or view.note}")
        return view.state

    async def summary(self) -> Summary:
        """Return the state in a few lines. Raises PrerequisiteError where nobody can say."""
        view = await self.look()
        if view.summary is None:
            raise PrerequisiteError(f"{self.id}: {view.why_not or view.note}")
        return view.summary

    async def events(self) -> AsyncIterator[Event]:
        """Yield the task's records, from the oldest that it still keeps, as they come, until it ends."""
        async for look in follow(self._tasks, self.id):
            for event in look.events:
                yield event

    async def result(self) -> TaskView:
        """Wait for the end, however long, and return it; ``outcome`` is set, and ``result`` where one was recorded.

        It carries on over restarts of server and worker. Raises RPCError where the server stays away.
        """
        view: TaskView | None = None
        async for look in follow(self._tasks, self.id):
            view = look.view or view
        if view is None or view.outcome is None:
            raise RuntimeError("following stopped before the task ended")
        return view

    async def pause(self, text: str = "", by: str | None = None) -> Answer:
        """Pause; a command that runs is stopped with everything it started. Raises BadInput where it has ended."""
        return await self._tell(SignalName.PAUSE, text, by)

    async def resume(self, text: str = "", by: str | None = None) -> Answer:
        """Let a paused task go on. Raises BadInput where it has ended."""
        return await self._tell(SignalName.RESUME, text, by)

    async def cancel(self, text: str = "", by: str | None = None) -> Answer:
        """End the task as CANCELLED. Raises BadInput where it has ended."""
        return await self._tell(SignalName.CANCEL, text, by)

    async def steer(self, text: str, by: str | None = None) -> Answer:
        """Tell planner and executor something, from the next decision on. Raises BadInput, also for an empty text."""
        return await self._tell(SignalName.STEER, text, by)

    async def _tell(self, name: SignalName, text: str, by: str | None) -> Answer:
        return await deliver(self._tasks, self.id, name, compose(name, text, by))


class Surefoot:
    """A connection to the tasks of one home."""

    def __init__(self, session: Session) -> None:
        """Use an open session; ``connect`` opens one."""
        self.session = session

    @classmethod
    async def connect(cls, home: Path | None = None, *, start_missing: bool = False) -> "Surefoot":
        """Connect to the server that the settings name, else to the home's embedded one.

        ``start_missing`` starts the embedded server and a worker where none run. Raises SettingsError,
        ServerUnreachable; PrerequisiteError where the server does not come up.
        """
        return await cls.open(load_settings(home=home), start_missing=start_missing)

    @classmethod
    async def open(cls, settings: Settings, *, start_missing: bool = False) -> "Surefoot":
        """Connect with settings of your own; otherwise as ``connect``."""
        if start_missing:
            await asyncio.to_thread(start_embedded, settings, True)
        return cls(await open_session(settings))

    async def submit(self, task: Path | str | TaskSpec, model: ModelEntry | None = None) -> Task:
        """Start a scenario file, or a spec as it stands, and return its task.

        ``model`` answers every tier of a scenario, whatever it says. Raises ScenarioError with every problem of the
        file; PrerequisiteError where a sandbox is asked for and none works; StoresDiffer where the workers use other
        stores than this process; RPCError where the server refuses.
        """
        spec = task if isinstance(task, TaskSpec) else await asyncio.to_thread(self._frozen, Path(task), model)
        await check_stores(self.session)
        handle = await start(self.session.client, self.session.settings, spec)
        return self.task(handle.id)

    def task(self, task_id: str) -> Task:
        """Return the task with this id, whether it exists or not."""
        return Task(self.session, task_id)

    async def ended(self, limit: int = 20) -> Sequence[RunRow]:
        """Return the tasks that ended last, newest first, from the ledger. Raises LedgerUnavailable."""
        return await asyncio.to_thread(self.session.tasks.rows, limit)

    def _frozen(self, path: Path, model: ModelEntry | None) -> TaskSpec:
        return freeze(load(path), self.session.settings, self.session.artifacts, model)
