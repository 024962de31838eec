"""A worker from the future, for clients of today: it says more than they know, and hands over more than ours reads."""

from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

from schemas.contract import STATE_QUERY, SUMMARY_QUERY, TASK_WORKFLOW

COLOUR = {"colour": "blue"}


def summary() -> dict[str, Any]:
    """Return a summary with a field more than today's."""
    counts = {"received": 0, "refused": 0, **COLOUR}
    spend = {"microusd": 5, "tokens": 1, "model_calls": 1, "tool_calls": 0, "gpu_seconds": 7}
    texts = dict.fromkeys(("name", "status", "goal", "place", "step_title", "now"), "from the future")
    numbers = dict.fromkeys(("plan_version", "steps_done", "steps_total", "requirements_met", "requirements_total"), 1)
    return {**texts, **numbers, "spend": spend, "messages": counts, "rehearsed": False, **COLOUR}


def event(number: int, kind: str) -> dict[str, Any]:
    """Return a record."""
    what = {"id": f"e{number}", "kind": kind, "source": "controller", "visible": False, "place": "v1", "text": kind}
    return {**what, "at": "2030-01-01T00:00:00+00:00", **COLOUR}


def state() -> dict[str, Any]:
    """Return a state with a status, a kind of record and fields that today's client does not know."""
    return {
        "status": "DREAMING",
        "started_at": "2030-01-01T00:00:00+00:00",
        "requirements": [{"id": "done", "mandatory": True, "met": True, **COLOUR}],
        "events": [event(1, "note"), event(2, "dream"), event(3, "note")],
        "counters": {"seq": 3, **COLOUR},
        **COLOUR,
    }


def result() -> dict[str, Any]:
    """Return a result with a reason that today's client does not know."""
    outcome = {"kind": "STOPPED_INCOMPLETE", "reason": "bored", "detail": "nothing new under the sun", **COLOUR}
    return {"outcome": outcome, "summary": summary(), "requirements": [], **COLOUR}


@workflow.defn(name=TASK_WORKFLOW)
class NewerTask:
    """Answers queries, and does what it is told."""

    def __init__(self) -> None:
        """Nothing is asked yet."""
        self.told: list[str] = []

    @workflow.run
    async def run(self, raw: RawValue) -> dict[str, Any]:
        """Wait for a signal: ``hand over`` to the next run, with a state from the future, or ``end``."""
        task = workflow.payload_converter().from_payload(raw.payload, dict[str, Any])
        await workflow.wait_condition(lambda: bool(self.told))
        if self.told[0] == "hand over":
            workflow.continue_as_new({**task, "state": state(), "handed_over_by": workflow.info().run_id})
        return result()

    @workflow.signal(dynamic=True)
    def receive(self, name: str, args: Sequence[RawValue]) -> None:
        """Take it down."""
        self.told.append(name)

    @workflow.query(name=STATE_QUERY)
    def state(self) -> dict[str, Any]:
        """Say more than anybody asked."""
        return state()

    @workflow.query(name=SUMMARY_QUERY)
    def summary(self) -> dict[str, Any]:
        """Say more than anybody asked."""
        return summary()
