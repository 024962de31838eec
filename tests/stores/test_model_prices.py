"""Prices are read from LiteLLM's own map without importing it, and agree with what LiteLLM says."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from schemas.pricing import Price
from stores.model_prices import close_names, key_variable, look_up

ROOT = Path(__file__).parents[2]
MODELS = [
    "gpt-4o",
    "openai/gpt-4o",
    "openai/gpt-4.1-mini",
    "o3",
    "claude-sonnet-4-5",
    "anthropic/claude-sonnet-4-5",
    "gemini/gemini-2.5-pro",
    "mistral/mistral-large-latest",
    "deepseek/deepseek-chat",
    "azure/gpt-4o",
    "vertex_ai/gemini-2.5-pro",
    "xai/grok-4.3",
]


WITH_KEYS = ["gpt-4o", "claude-sonnet-4-5", "gemini/gemini-2.5-pro", "xai/grok-4.3"]
ASK_LITELLM = """
import json, sys
from activities.model.litellm_gateway import load
models, with_keys = json.loads(sys.argv[1])
litellm = load()
infos = {model: litellm.get_model_info(model) for model in models}
missing = {model: litellm.validate_environment(model)["missing_keys"] for model in with_keys}
print(json.dumps([infos, missing]))
"""


@pytest.fixture(scope="module")
def said() -> Any:
    """What LiteLLM says of the models, and of the keys: asked in a process of its own, since asking changes it."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    command = [sys.executable, "-c", ASK_LITELLM, json.dumps([MODELS, WITH_KEYS])]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=100)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("model", MODELS)
def test_a_known_model_costs_what_litellm_says(said: Any, model: str) -> None:
    known = look_up(model)
    info = said[0][model]
    assert known is not None
    assert known.price is not None
    assert known.price.input_microusd_per_mtok == round(info["input_cost_per_token"] * 1e12)
    assert known.price.output_microusd_per_mtok == round(info["output_cost_per_token"] * 1e12)
    cached = info.get("cache_read_input_token_cost")
    assert known.price.cached_input_microusd_per_mtok == (None if cached is None else round(cached * 1e12))
    written = info.get("cache_creation_input_token_cost")
    assert known.price.cache_write_microusd_per_mtok == (None if written is None else round(written * 1e12))
    assert known.max_output_tokens == info["max_output_tokens"]


@pytest.mark.parametrize("model", ["openai/no-such-model", "rehearsed", "", "/", "openai/", "dall-e-3", "sample_spec"])
def test_an_unknown_model_has_no_price(model: str) -> None:
    assert look_up(model) is None


def test_a_mistyped_name_finds_its_neighbours() -> None:
    assert "gpt-4o" in close_names("openai/gpt-4oo")
    assert close_names("claude-sonet-4-5")[0] == "claude-sonnet-4-5"
    assert close_names("zzzzqqqq") == []


@pytest.mark.parametrize("model", WITH_KEYS)
def test_the_key_variable_is_the_one_that_litellm_asks_for(said: Any, model: str) -> None:
    assert key_variable(model) in said[1][model]


def test_a_local_model_is_free_and_needs_no_key() -> None:
    known = look_up("ollama/llama3")
    assert known is not None
    assert known.price == Price(input_microusd_per_mtok=0, output_microusd_per_mtok=0)
    assert key_variable("ollama/llama3") is None


def test_looking_up_does_not_import_litellm() -> None:
    program = (
        "import sys; from stores.model_prices import look_up; assert look_up('gpt-4o');"
        "assert 'litellm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=dict(os.environ), check=True, timeout=60)
