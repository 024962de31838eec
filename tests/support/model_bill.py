"""Reads the model stub's bill: what a provider would charge, apart from anything that Surefoot counts."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from schemas.pricing import Price, Usage, cost_microusd


def read_bill(log: Path) -> list[dict[str, Any]]:
    """Return a stub's log, one entry for each request."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def billed_usage(entry: dict[str, Any]) -> Usage:
    """Return the tokens that the stub billed for one request."""
    billed = entry["billed"] or {"prompt_tokens": 0, "completion_tokens": 0}
    prompt, completion = billed.get("prompt_tokens_details") or {}, billed.get("completion_tokens_details") or {}
    return Usage(
        input_tokens=billed["prompt_tokens"],
        output_tokens=billed["completion_tokens"],
        cached_input_tokens=prompt.get("cached_tokens", 0),
        reasoning_tokens=completion.get("reasoning_tokens", 0),
    )


def billed_microusd(entries: Iterable[dict[str, Any]], price: Price) -> int:
    """Return what the stub charges for the requests, each rounded up as a provider's invoice line."""
    return sum(cost_microusd(billed_usage(entry), price) for entry in entries)
