"""Outages of what a run is recorded in: a call that one ends waits, visibly, and is tried again for as long as a day.

It is tried with the same request, so under the same effect id: where nothing was claimed the claim is made then, where
one was left open the ledger says what became of it. What the call has reserved stays reserved meanwhile.

An unavailable workspace is none of these: what a worker says of one does not change by waiting longer than the attempts
of an activity, and a worker that is away is waited for anyway.
"""

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from schemas.base import clip
from schemas.errors import LedgerUnavailable, StorageUnavailable
from schemas.outcome import OutcomeKind, Status
from schemas.state import EventKind
from workflows.control.patience import pause_seconds
from workflows.journal import Journal

AWAY = {LedgerUnavailable.__name__: "the ledger", StorageUnavailable.__name__: "the disk"}


def away(error: ActivityError) -> str | None:
    """Return what the activity could not reach, for people; None where its error is no outage."""
    cause = error.cause
    return AWAY.get(cause.type or "") if isinstance(cause, ApplicationError) else None


class Outages:
    """What one run waits for; several calls may wait for it side by side, and it is told once."""

    def __init__(self, journal: Journal) -> None:
        """Tell in the run's journal."""
        self.journal = journal
        self.hurried = False
        """Whether Temporal's cancel came while the run was closing: it waits no longer."""
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
        """
        what = away(error)
        if what is None or self._outages.unwanted():
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
        return not self._outages.unwanted()

    def _called(self) -> bool:
        return self._outages.unwanted() or self._outages.paused()

    async def _stand_still(self, said: str) -> timedelta:
        """Wait until people let the run go on, or end it; return how long that took."""
        journal, began = self._outages.journal, workflow.now()
        journal.enter(Status.PAUSED)
        journal.say(clip(f"paused by {journal.state.paused_by}; {said}"))
        await workflow.wait_condition(lambda: self._outages.unwanted() or not self._outages.paused())
        if journal.state.status is Status.PAUSED and not self._outages.unwanted():
            journal.enter(Status.RUNNING)
        return workflow.now() - began
