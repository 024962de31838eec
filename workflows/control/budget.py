"""Reserve before, settle after: what a call may cost, and whether the limits allow it."""

from schemas.base import rebuild
from schemas.budget import Limits, Reservation, Spend, add, exceeded, greater
from schemas.models import ModelChoice
from schemas.outcome import StopReason
from schemas.pricing import ceiling_microusd
from schemas.state import AgentState

REASON_OF_LIMIT = {
    "microusd": StopReason.BUDGET_USD,
    "tokens": StopReason.BUDGET_TOKENS,
    "model_calls": StopReason.BUDGET_MODEL_CALLS,
    "tool_calls": StopReason.BUDGET_TOOL_CALLS,
}


def reserve(choice: ModelChoice, input_tokens: int) -> Reservation:
    """Return the most that a request of ``input_tokens`` to this model can cost, at its frozen price."""
    money = ceiling_microusd(input_tokens, choice.max_output_tokens, choice.price) if choice.price else 0
    return Reservation(microusd=money, input_tokens=input_tokens, output_tokens=choice.max_output_tokens)


def model_call(reservation: Reservation) -> Spend:
    """Return what one model request counts while it is open."""
    return Spend(microusd=reservation.microusd, tokens=reservation.tokens, model_calls=1)


def over_limit(state: AgentState, limits: Limits, cost: Spend) -> str | None:
    """Return the name of the limit that ``cost`` on top of everything spent and open would pass, or None."""
    return exceeded(add(add(state.spend, state.reserved), cost), limits)


def exhausted(state: AgentState, limits: Limits) -> str | None:
    """Return the name of a limit that is used up; reaching a limit exactly is using it up."""
    for name in Spend.model_fields:
        limit = getattr(limits, name)
        if limit is not None and getattr(state.spend, name) >= limit:
            return name
    return None


def open_call(state: AgentState, cost: Spend) -> AgentState:
    """Count ``cost`` as reserved."""
    return rebuild(state, reserved=add(state.reserved, cost))


def settle(state: AgentState, cost: Spend, charged: Spend, chain: Spend) -> AgentState:
    """Replace the reservation ``cost`` by what was ``charged``; the ledger's ``chain`` total wins where greater.

    While another call is open the total may hold that one's charge already, which is counted when it is settled: so
    only the last of several calls side by side looks at the total.
    """
    reserved = Spend(**{name: getattr(state.reserved, name) - getattr(cost, name) for name in Spend.model_fields})
    spend = add(state.spend, charged)
    return rebuild(state, reserved=reserved, spend=greater(spend, chain) if reserved == Spend() else spend)


def left(state: AgentState, limits: Limits) -> str:
    """Return what is left of each limit, for prompts and people."""
    parts = []
    if limits.microusd is not None:
        rest = max(0, limits.microusd - state.spend.microusd)
        parts.append(f"{exact_dollars(rest)} of {exact_dollars(limits.microusd)}")
    for name, unit in (("tokens", "tokens"), ("model_calls", "model calls"), ("tool_calls", "tool calls")):
        limit = getattr(limits, name)
        if limit is not None:
            parts.append(f"{max(0, limit - getattr(state.spend, name)):,} of {limit:,} {unit}")
    return ", ".join(parts) or "no limits set"


def exact_dollars(microusd: int) -> str:
    """Return money to the last micro-dollar, as ``$0.012345`` or ``$2``."""
    whole, rest = divmod(microusd, 1_000_000)
    return f"${whole}.{rest:06d}".rstrip("0").rstrip(".") if rest else f"${whole}"
