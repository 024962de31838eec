"""The journal: the one state of a run, how it changes, and how it is shown."""

from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from schemas.actions import Observation, ProposedAction
from schemas.base import rebuild
from schemas.contract import SearchAttribute
from schemas.ids import CallKey
from schemas.outcome import Outcome, Status
from schemas.state import AgentState, EventKind, Summary
from schemas.task import TaskSpec
from schemas.telemetry import Label, Metric
from workflows.control import narrate, records

STATUS = SearchAttributeKey.for_keyword(SearchAttribute.STATUS)
OUTCOME = SearchAttributeKey.for_keyword(SearchAttribute.OUTCOME)
REASON = SearchAttributeKey.for_keyword(SearchAttribute.REASON)
TASK_TYPE = SearchAttributeKey.for_keyword(SearchAttribute.TASK_TYPE)
WAITING = SearchAttributeKey.for_bool(SearchAttribute.WAITING)
SPEND_USD = SearchAttributeKey.for_float(SearchAttribute.SPEND_USD)


def now() -> str:
    """Return workflow time as ISO 8601, UTC."""
    return workflow.now().isoformat(timespec="milliseconds")


class Journal:
    """Holds the spec and the state. State changes only by ``change`` and by pure functions given to ``apply``."""

    def __init__(self, spec: TaskSpec, state: AgentState) -> None:
        """Start from ``state``, which the run before may have left."""
        self.spec = spec
        self.state = state
        self.doing = "starting"
        self._published: Status | None = None

    def change(self, **changes: Any) -> None:
        """Replace fields of the state, validated."""
        self.state = rebuild(self.state, **changes)

    def count(self, **more: int) -> None:
        """Add to counters."""
        counters = self.state.counters
        self.change(counters=rebuild(counters, **{name: getattr(counters, name) + by for name, by in more.items()}))

    def next_id(self, letter: str) -> str:
        """Return the next id of a kind, as ``o17``."""
        self.state, number = records.next_seq(self.state)
        return f"{letter}{number}"

    def next_key(self) -> CallKey:
        """Return the key of a new effect."""
        self.state, number = records.next_seq(self.state)
        info = workflow.info()
        return CallKey(
            workflow_id=info.workflow_id, run_id=info.run_id, first_run_id=info.first_execution_run_id, seq=number
        )

    def note(self, kind: EventKind, text: str, *, place: str = "", **facts: Any) -> None:
        """Record an event at the current place; ``facts`` are those of ``records.note_event``."""
        place = place or narrate.place_of(self.state)
        self.state = records.note_event(self.state, kind, place, text, now(), **facts)

    def begin_action(self, action: ProposedAction, place: str, observation_id: str, effect_id: str | None) -> str:
        """Record an action that is about to be performed or was not let through; return its event's id."""
        self.state, event = records.note_action(self.state, action, place, observation_id, effect_id, now())
        return event

    def observe(self, action_event: str, seen: Observation) -> None:
        """Record the one observation of an action."""
        self.state = records.note_observation(self.state, action_event, seen, now())

    def say(self, doing: str) -> None:
        """Say what happens now, to people who look."""
        self.doing = doing
        workflow.set_current_details(narrate.details(self.spec, self.state, doing))

    def enter(self, status: Status) -> None:
        """Move to ``status`` and publish it; publishing costs a history event, so only a change does."""
        if self.state.status is not status:
            kind, text = narrate.status_change(self.state, status)
            self.change(status=status)
            self.note(kind, text)
        if self._published is not status:
            pairs: list[SearchAttributeUpdate[Any]] = [
                STATUS.value_set(status.value),
                WAITING.value_set(status in (Status.WAITING, Status.PAUSED)),
            ]
            if self._published is None:
                pairs.append(TASK_TYPE.value_set(self.spec.task_type))
            self._published = status
            workflow.upsert_search_attributes(pairs)
            workflow.logger.info("status %s", status.value)

    def publish_outcome(self, outcome: Outcome) -> None:
        """Publish the end of the run."""
        pairs: list[SearchAttributeUpdate[Any]] = [
            STATUS.value_set(outcome.kind.value),
            OUTCOME.value_set(outcome.kind.value),
            WAITING.value_set(False),
            SPEND_USD.value_set(self.state.spend.microusd / 1_000_000),
        ]
        reason = outcome.reason.value if outcome.reason else outcome.error_type
        if reason:
            pairs.append(REASON.value_set(reason))
        workflow.upsert_search_attributes(pairs)
        self.say(f"{outcome.label}: {outcome.detail}")
        workflow.logger.info("outcome %s", outcome.label)  # neither is said again when a history is replayed
        counter = workflow.metric_meter().create_counter(Metric.OUTCOMES)
        counter.add(1, {Label.KIND: outcome.kind.value, Label.REASON: reason or ""})

    def summary(self) -> Summary:
        """Return the state in a few lines."""
        return narrate.summarize(self.spec, self.state, self.doing)
