"""What counts as a reference: everything that could be one."""

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stores.marking import hashes_in, reachable, workspace_is_over, workspaces_in


def name_of(number: int) -> str:
    """Return the SHA-256 of a number."""
    return hashlib.sha256(str(number).encode()).hexdigest()


NAMES = frozenset(map(name_of, range(12)))
NOW = datetime(2026, 6, 1, tzinfo=UTC)


@given(before=st.binary(), after=st.binary(), name=st.sampled_from(sorted(NAMES)))
def test_a_hash_is_found_whatever_stands_around_it(before: bytes, after: bytes, name: str) -> None:
    assert name in hashes_in(before + name.encode() + after, NAMES)


@given(around=st.text("0123456789abcdef", max_size=200), name=st.sampled_from(sorted(NAMES)))
def test_a_hash_is_found_in_the_middle_of_other_digits(around: str, name: str) -> None:
    assert name in hashes_in(f"{around}{name}{around}".encode(), NAMES)


@given(data=st.binary())
def test_only_names_that_exist_are_found(data: bytes) -> None:
    assert hashes_in(data, NAMES) <= NAMES
    assert hashes_in(data + b"f" * 64, NAMES) <= NAMES


edges = st.dictionaries(st.integers(0, 11), st.frozensets(st.integers(0, 15), max_size=4), max_size=12)


@given(edges=edges, roots=st.frozensets(st.integers(0, 15), max_size=4))
def test_what_is_marked_is_what_can_be_reached(edges: dict[int, frozenset[int]], roots: frozenset[int]) -> None:
    contents = {name_of(start): " ".join(map(name_of, sorted(ends))).encode() for start, ends in edges.items()}
    marked = reachable({name_of(root) for root in roots}, lambda name: contents.get(name, b""), NAMES)
    assert marked <= NAMES
    assert {name_of(root) for root in roots} & NAMES <= marked
    for name in marked:  # closed: nothing that a marked one refers to is left out
        assert hashes_in(contents.get(name, b""), NAMES) <= marked
    expected, waiting = set(), [root for root in roots if root < 12]
    while waiting:  # and minimal: nothing else is in it
        number = waiting.pop()
        if number not in expected and number < 12:
            expected.add(number)
            waiting += edges.get(number, frozenset())
    assert marked == {name_of(number) for number in expected}


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"name":"task-a.0123456789","kind":"local"}', {"task-a.0123456789"}),
        (b'"/home/x/workspaces/task-a.0123456789/files"', {"task-a.0123456789"}),
        (b"task-a.01234567890", set()),
        (b"task-b.0123456789", set()),
    ],
)
def test_a_workspace_is_found_by_its_name(data: bytes, found: set[str]) -> None:
    assert workspaces_in(data, {"task-a.0123456789"}) == found


@pytest.mark.parametrize(
    ("ended_days", "opened_days", "in_open_run", "in_history", "over"),
    [
        (31, 40, False, True, True),  # ended long ago, whatever Temporal still has
        (29, 40, False, False, False),  # not long enough
        (31, 40, True, True, False),  # a reset run goes on in it
        (None, 31, False, False, True),  # nobody recorded its end, and it is old
        (None, 29, False, False, False),
        (None, 31, False, True, False),  # Temporal still tells what became of its run
        (None, 31, True, True, False),
    ],
)
def test_a_workspace_goes_when_its_run_ended_long_ago(
    ended_days: int | None, opened_days: int, in_open_run: bool, in_history: bool, over: bool
) -> None:
    answer = workspace_is_over(
        opened=NOW - timedelta(days=opened_days),
        ended=None if ended_days is None else NOW - timedelta(days=ended_days),
        in_open_run=in_open_run,
        in_history=in_history,
        now=NOW,
        older_than=timedelta(days=30),
        young=timedelta(days=1),
    )
    assert answer is over


def test_a_young_workspace_without_a_recorded_end_stays_however_small_the_age() -> None:
    def over(hours: int) -> bool:
        return workspace_is_over(
            opened=NOW - timedelta(hours=hours),
            ended=None,
            in_open_run=False,
            in_history=False,
            now=NOW,
            older_than=timedelta(0),
            young=timedelta(days=1),
        )

    assert (over(23), over(25)) == (False, True)
