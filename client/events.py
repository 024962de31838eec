"""The events of a task: live from its state, and from the archive after Temporal has forgotten it."""

import asyncio
import json
import re
from collections.abc import Iterable

from client import lines
from client.follow import follow
from client.problems import BadInput, PrerequisiteError
from client.session import Records, with_records
from client.streams import say
from client.views import TaskView
from schemas.outcome import EXIT_VERIFIED
from schemas.state import Event, EventKind
from stores.archive import Archived, RunArchive, in_order, number_of
from stores.settings import Settings


def events(
    settings: Settings, task_id: str, kinds: Iterable[str], since: str | None, following: bool, as_json: bool
) -> int:
    """Print a task's events, oldest first; ``following`` waits for more until the task ends."""
    after, wanted = event_number(since) if since else 0, frozenset(map(event_kind, kinds))

    async def work(records: Records) -> int:
        printer = _Printer(records, wanted, after, as_json)
        if following:
            await printer.follow(task_id)
        else:
            await printer.whole(await records.tasks.look(task_id))
        return EXIT_VERIFIED

    return with_records(settings, work)


def events_of(view: TaskView, archive: RunArchive) -> Archived:
    """Return all events of a task that can be had, and what is missing."""
    known = view.state.archive if view.state else None
    archived = archive.read(view.id, view.first_run_id, known)
    if view.state is not None:
        newest = {event.id: event for event in (*archived.events, *view.state.events)}
        return Archived(in_order(newest.values()), archived.missing, view.ended)
    if archived.complete:
        return archived
    which = f"the events after {archived.events[-1].id}" if archived.events else "its events"
    missing = f"{which} are not in the archive: {view.why_not or 'its state was not recorded'}"
    return Archived(archived.events, (*archived.missing, missing))


def event_number(text: str) -> int:
    """Return the number in an event's id, as ``e19`` or ``19``. Raises BadInput."""
    if re.fullmatch(r"e?[0-9]{1,18}", text) is None:
        raise BadInput(f"--since wants an event's id, as e19, not {text!r}")
    return int(text.removeprefix("e"))


def event_kind(text: str) -> EventKind:
    """Return the kind of that name. Raises BadInput."""
    try:
        return EventKind(text)
    except ValueError:
        raise BadInput(f"--kind: there is no kind {text!r} of events; there are {', '.join(EventKind)}") from None


class _Printer:
    """Prints each wanted event once."""

    def __init__(self, records: Records, kinds: frozenset[EventKind], after: int, as_json: bool) -> None:
        self._records = records
        self._kinds = kinds
        self._printed = after
        self._as_json = as_json
        self._said: set[str] = set()

    async def whole(self, view: TaskView) -> None:
        """Print what is new of everything there is. Raises PrerequisiteError where all of it is lost."""
        found = await asyncio.to_thread(events_of, view, self._records.archive)
        if view.ended and found.missing and not found.events:
            raise PrerequisiteError("\n".join(found.missing))
        for problem in found.missing:
            if not view.ended and problem not in self._said:
                self._said.add(problem)
                say(problem)
        self._print(found.events)
        if view.ended:
            for problem in found.missing:
                say(problem)

    async def follow(self, task_id: str) -> None:
        """Print events as they come, until the task ends."""
        first = True
        async for look in follow(self._records.tasks, task_id):
            if look.view is None:
                continue
            if first or look.gap or look.view.ended:
                await self.whole(look.view)
                first = False
            else:
                self._print(look.events)

    def _print(self, found: Iterable[Event]) -> None:
        for event in found:
            if number_of(event) <= self._printed:
                continue
            self._printed = number_of(event)
            if self._kinds and event.kind not in self._kinds:
                continue
            line = lines.event_line(event)
            print(json.dumps(event.model_dump(mode="json"), ensure_ascii=False) if self._as_json else line, flush=True)
