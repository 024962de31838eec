"""What a state counts as spent: each call once, whatever the order in which the ledger and the workflow see them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.budget import Spend, add
from schemas.checks import RequirementState
from schemas.state import AgentState
from workflows.control.budget import open_call, settle

RESERVED = Spend(microusd=1000, tokens=100, model_calls=1)
charges = st.builds(Spend, microusd=st.integers(0, 1000), tokens=st.integers(0, 100), model_calls=st.just(1))


def state_with(spend: Spend) -> AgentState:
    """Return a state that remembers ``spend``."""
    requirements = (RequirementState(id="done", mandatory=True),)
    return AgentState(started_at="2026-01-01T00:00:00.000+00:00", requirements=requirements, spend=spend)


@pytest.mark.parametrize("closed_first", [0, 1], ids=["first closes first", "second closes first"])
@pytest.mark.parametrize("seen_first", [0, 1], ids=["first seen first", "second seen first"])
@given(before=charges, first=charges, second=charges)
def test_two_calls_side_by_side_count_once_each(
    closed_first: int, seen_first: int, before: Spend, first: Spend, second: Spend
) -> None:
    """Each reply brings the ledger's total at its own end, which holds the other's charge where that closed before."""
    charged = (first, second)
    after_one = add(before, charged[closed_first])
    totals = {closed_first: after_one, 1 - closed_first: add(after_one, charged[1 - closed_first])}
    state = open_call(open_call(state_with(before), RESERVED), RESERVED)
    for call in (seen_first, 1 - seen_first):
        state = settle(state, RESERVED, charged[call], totals[call])
    assert state.spend == add(add(before, first), second)
    assert state.reserved == Spend()


@given(before=charges, forgotten=charges, charged=charges)
def test_one_call_alone_brings_back_what_a_reset_forgot(before: Spend, forgotten: Spend, charged: Spend) -> None:
    chain = add(add(before, forgotten), charged)
    assert settle(open_call(state_with(before), RESERVED), RESERVED, charged, chain).spend == chain
