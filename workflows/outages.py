"""Outages of what a run is recorded or works in: a call that one ends waits, visibly, and is tried again, up to a day.

It is tried with the same request, so under the same effect id: where nothing was claimed the claim is made then, where
one was left open the ledger says what became of it. What the call has reserved stays reserved meanwhile.

Messages go on coming meanwhile. Where they let the history grow to twice its caps, the run hands over, which needs no
store: the call that waits counts as one that nobody answered, and the next run decides anew. A run that is closing
cannot; near Temporal's limits it waits no longer, and ends unrecorded: others record it (``stores.unrecorded``).

A workspace whose volume is away is waited for likewise; one that is gone (WorkspaceLost) is not.
"""

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from schemas.base import clip
from schemas.errors import LedgerUnavailable, StorageUnavailable, WorkspaceUnavailable
from schemas.outcome import OutcomeKind, Status
from schemas.state import EventKind
from workflows.control.patience import can_be_carried, no_room, pause_seconds
from workflows.journal import Journal

AWAY = {
    LedgerUnavailable.__name__: "the ledger",
    StorageUnavailable.__name__: "the disk",
    WorkspaceUnavailable.__name__: "the workspace",
}


def away(error: ActivityError) -> str | None:
    """Return what the activity could not reach, for people; None where its error is no outage."""
    cause = error.cause
    return AWAY.get(cause.type or "") if isinstance(cause, ApplicationError) else None


class HandOver(Exception):
    """The run hands over to the next one of its chain."""


class Outages:
    """What one run waits for; several calls may wait for it side by side, and it is told once."""

    def __init__(self, journal: Journal) -> None:
        """Tell in the run's journal."""
        self.journal = journal
        self.hurried = False
        """Whether Temporal's cancel came while the run was closing: it waits no longer."""
        self.ending = False
        """Whether the run has begun to end, so that it cannot hand over."""
        self.handing_over = False
        """Whether it is about to hand over, once its events are archived or few."""
        self._waiting = 0
        self._doing = ""

    @contextlib.contextmanager
    def one(self) -> "Iterator[Outage]":
        """Give what one call waits with; where it does, the wait ends with the block."""
        outage = Outage(self)
        try:
            yield outage
        finally:
            if outage.since is not None:
                self._ended(outage.since)

    def unwanted(self) -> bool:
        """Whether the run should end now, whatever is lost by it."""
        outcome = self.journal.state.outcome
        cancelled = outcome is not None and outcome.kind is OutcomeKind.CANCELLED
        return self.hurried or cancelled or self.journal.state.cancel is not None

    def no_room(self) -> bool:
        """Whether the history has grown too far to wait on in it."""
        info, state = workflow.info(), self.journal.state
        must_stay = self.ending or (self.handing_over and not can_be_carried(state))
        length, size = info.get_current_history_length(), info.get_current_history_size()
        return no_room(length, size, self.journal.spec.caps, must_stay=must_stay)

    def paused(self) -> bool:
        """Whether people hold the run; one that is closing cannot be held."""
        return self.journal.state.paused_by is not None and self.journal.state.outcome is None

    def begun(self, said: str) -> None:
        """Tell the outage, if it is not told yet."""
        self._waiting += 1
        if self._waiting == 1:
            self._doing = self.journal.doing
            self.journal.note(EventKind.NOTE, said, ok=False)
            workflow.logger.warning(said)

    def _ended(self, since: datetime) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            seconds = (workflow.now() - since).total_seconds()
            self.journal.note(EventKind.NOTE, f"waited {seconds:,.0f} s")
            self.journal.say(self._doing)


class Outage:
    """What one call waits for between its tries."""

    def __init__(self, outages: Outages) -> None:
        """Begin when the first try fails."""
        self._outages = outages
        self.since: datetime | None = None
        """Workflow time of its beginning, later by what the run stood still meanwhile."""

    async def wait(self, error: ActivityError) -> bool:
        """Wait a while; return whether the call should be tried again.

        It should not where the error is no outage, the outage has lasted a day, or the run is to end now.

        Raises: HandOver where the history has no room for more.
        """
        what = away(error)
        if what is None or self._given_up():
            return False
        said = clip(f"waiting for {what}: {getattr(error.cause, 'message', error.cause)}")
        if self.since is None:
            self.since = workflow.now()
            self._outages.begun(said)
        seconds = pause_seconds((workflow.now() - self.since).total_seconds())
        if seconds is None:
            return False
        self._outages.journal.say(said)
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(self._called, timeout=timedelta(seconds=seconds))
        if self._outages.paused():
            self.since += await self._stand_still(said)
        return not self._given_up()

    def _given_up(self) -> bool:
        if self._outages.unwanted():
            return True
        if self._outages.no_room() and not self._outages.ending:
            raise HandOver
        return self._outages.no_room()

    def _called(self) -> bool:
        return self._outages.unwanted() or self._outages.paused() or self._outages.no_room()

    async def _stand_still(self, said: str) -> timedelta:
        """Wait until people let the run go on, or end it; return how long that took."""
        journal, began = self._outages.journal, workflow.now()
        journal.enter(Status.PAUSED)
        journal.say(clip(f"paused by {journal.state.paused_by}; {said}"))
        outages = self._outages
        await workflow.wait_condition(lambda: outages.unwanted() or not outages.paused() or outages.no_room())
        if journal.state.status is Status.PAUSED and not outages.paused() and not outages.unwanted():
            journal.enter(Status.RUNNING)
        return workflow.now() - began
