"""Plan versions as they went, and what changed between them."""

from collections.abc import Iterable

import pytest

from client.plans import ChangeKind, changes, versions_of
from schemas.plan import PlanVersion, Step, StepStatus
from schemas.state import Event, EventKind, Source
from tests.support.scripted import text_ref


def version(number: int, *titles: str, after: str | None = None, instruction: str | None = None) -> PlanVersion:
    """Return a version with steps to do."""
    steps = tuple(
        Step(id=f"v{number}.s{place}", title=title, instruction=text_ref(instruction or title))
        for place, title in enumerate(titles, start=1)
    )
    return PlanVersion(version=number, why="because", after_step=after, steps=steps)


def events(*told: PlanVersion | str) -> list[Event]:
    """Return events that tell of versions, and of steps that were done."""
    return [
        Event(
            id=f"e{number}",
            kind=EventKind.PLAN_VERSION if isinstance(item, PlanVersion) else EventKind.STATE_CHANGE,
            source=Source.AGENT,
            visible=True,
            place=item if isinstance(item, str) else f"v{item.version}",
            at="2026-01-01T00:00:00.000+00:00",
            text="told",
            ok=True,
            plan=item if isinstance(item, PlanVersion) else None,
        )
        for number, item in enumerate(told, start=1)
    ]


def statuses(versions: Iterable[PlanVersion]) -> dict[str, str]:
    """Return the status of every step."""
    return {step.id: step.status.value for plan in versions for step in plan.steps}


def test_events_alone_tell_what_became_of_every_step() -> None:
    told = events(version(1, "a", "b", "c"), "v1.s1", version(2, "d", after="v1.s2"), "v2.s1")
    assert statuses(versions_of(told)) == {"v1.s1": "done", "v1.s2": "failed", "v1.s3": "todo", "v2.s1": "done"}


def test_versions_that_the_events_lost_are_taken_from_the_state() -> None:
    told = events(version(2, "d"))
    assert [plan.version for plan in versions_of(told)] == [2]
    assert versions_of([]) == ()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (version(1, "a"), version(2, "a"), [("kept", "v1.s1", "v2.s1")]),
        (version(1, "a"), version(2, "a", instruction="in another way"), [("reworded", "v1.s1", "v2.s1")]),
        (
            version(1, "Read all the files"),
            version(2, "Read all of the files"),
            [("reworded", "v1.s1", "v2.s1")],
        ),
        (version(1, "a", "zzz"), version(2, "a"), [("kept", "v1.s1", "v2.s1"), ("dropped", "v1.s2", None)]),
        (version(1, "a"), version(2, "b b b", "a"), [("kept", "v1.s1", "v2.s2"), ("added", None, "v2.s1")]),
        (version(1, "same", "same"), version(2, "same"), [("kept", "v1.s1", "v2.s1"), ("dropped", "v1.s2", None)]),
    ],
)
def test_each_step_is_accounted_for(
    before: PlanVersion, after: PlanVersion, expected: list[tuple[str, str | None, str | None]]
) -> None:
    found = [
        (change.kind.value, change.before and change.before.id, change.after and change.after.id)
        for change in changes(before, after)
    ]
    assert found == expected


def test_done_and_failed_steps_are_called_that() -> None:
    told = events(version(1, "a", "b"), "v1.s1", version(2, "b", "c c c", after="v1.s2"))
    before, after = versions_of(told)
    found = changes(before, after)
    assert [change.kind for change in found] == [ChangeKind.DONE, ChangeKind.FAILED, ChangeKind.ADDED]
    assert before.steps[1].status is StepStatus.FAILED
    assert found[1].after == after.steps[0], "the failed step is tried again"
