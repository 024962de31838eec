"""What is known of a model before anything starts: its price and limits, from LiteLLM's bundled map.

The map is read as a file: importing LiteLLM takes seconds, and neither client nor workflow may.
"""

import difflib
import functools
import importlib.util
import json
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any

from schemas.base import Count, Frozen
from schemas.pricing import Price

MAP_FILE = "model_prices_and_context_window_backup.json"
MICROUSD_PER_MTOK = Decimal(10) ** 12  # from dollars per token
CHAT_MODES = {"chat", "completion", "responses"}
KEY_VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "groq": "GROQ_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "xai": "XAI_API_KEY",
    "perplexity": "PERPLEXITYAI_API_KEY",
    "fireworks_ai": "FIREWORKS_AI_API_KEY",
    "together_ai": "TOGETHERAI_API_KEY",
    "cerebras": "CEREBRAS_API_KEY",
    "cohere_chat": "COHERE_API_KEY",
    "deepinfra": "DEEPINFRA_API_KEY",
    "nebius": "NEBIUS_API_KEY",
}
"""Providers that need one key and nothing else, with the variable that LiteLLM's documentation names."""


class KnownModel(Frozen):
    """A model as the map has it."""

    name: str
    """Its entry's name."""
    provider: str
    """LiteLLM's name of the provider."""
    price: Price | None = None
    """Price of plain use (no batch, no long-context surcharge); None where the map has none."""
    max_output_tokens: Count | None = None
    """The most that it can answer; None where it is not known."""


def look_up(model: str) -> KnownModel | None:
    """Return what is known of a LiteLLM model string; None for an unknown one, or where LiteLLM is not installed."""
    entry = _find(model)
    if entry is None:
        return None
    name, data = entry
    limit = data.get("max_output_tokens")
    return KnownModel(
        name=name,
        provider=str(data.get("litellm_provider") or ""),
        price=_price(data),
        max_output_tokens=limit if isinstance(limit, int) and limit > 0 else None,
    )


def close_names(model: str, count: int = 3) -> list[str]:
    """Return known model names that look like ``model``, best first."""
    names = [name for name, data in _entries().items() if data.get("mode") in CHAT_MODES]
    bare = model.rsplit("/", 1)[-1]
    found = difflib.get_close_matches(bare, names, count, 0.7) + difflib.get_close_matches(model, names, count, 0.7)
    return list(dict.fromkeys(found))[:count]


def key_variable(model: str) -> str | None:
    """Return the environment variable that holds the key for ``model``; None where it takes none, or is unknown."""
    known = look_up(model)
    prefix = model.split("/", 1)[0] if "/" in model else ""
    return KEY_VARIABLES.get(prefix) or KEY_VARIABLES.get(known.provider if known else "")


@functools.lru_cache(maxsize=1)
def _entries() -> Mapping[str, Mapping[str, Any]]:
    package = importlib.util.find_spec("litellm")
    if package is None or package.origin is None:
        return {}
    text = (Path(package.origin).parent / MAP_FILE).read_text("utf-8")
    entries: dict[str, dict[str, Any]] = json.loads(text, parse_float=Decimal)
    entries.pop("sample_spec", None)
    return entries


def _find(model: str) -> tuple[str, Mapping[str, Any]] | None:
    """Return the entry of the full name, or of the name behind a provider that is the entry's own."""
    prefix, _, bare = model.partition("/")
    for name in (model, bare):
        data = _entries().get(name) if name else None
        if data is None or data.get("mode") not in CHAT_MODES:
            continue
        if name == model or str(data.get("litellm_provider", "")).split("-")[0] == prefix:
            return name, data
    return None


def _price(data: Mapping[str, Any]) -> Price | None:
    plain = [_meter(data, name) for name in ("input_cost_per_token", "output_cost_per_token")]
    if plain[0] is None or plain[1] is None:
        return None
    return Price(
        input_microusd_per_mtok=plain[0],
        output_microusd_per_mtok=plain[1],
        cached_input_microusd_per_mtok=_meter(data, "cache_read_input_token_cost"),
        cache_write_microusd_per_mtok=_meter(data, "cache_creation_input_token_cost"),
    )


def _meter(data: Mapping[str, Any], name: str) -> int | None:
    value = data.get(name)
    if value is None or isinstance(value, str):
        return None
    return int((Decimal(value) * MICROUSD_PER_MTOK).to_integral_value(ROUND_CEILING))
