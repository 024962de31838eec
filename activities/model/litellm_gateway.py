"""The adapter to LiteLLM: one completion is one HTTP request."""

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from activities.model.errors import sorted_error
from activities.model.port import AmbiguousCall, Completion, CompletionReply
from schemas.errors import SecretUnresolved
from schemas.models import Node
from schemas.pricing import Usage
from stores.secrets import Secrets

MAX_TOKENS_COUNTED = 10**9  # more is no count but nonsense


def load() -> Any:
    """Import LiteLLM without network call and without reading ``.env``, and return the module.

    It takes about three seconds: a worker calls this in a thread. It holds the interpreter for half a second at most,
    so that heartbeats get through.
    """
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches its price map at import
    os.environ["LITELLM_MODE"] = "PRODUCTION"  # else it loads .env from the working directory
    loggers = [logging.getLogger(name) for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")]
    for logger in loggers:
        logger.setLevel(logging.WARNING)  # else it takes ours, and at debug writes to standard output at import
    import litellm

    for logger in loggers:
        logger.handlers.clear()  # they write past the process's own log, which masks
    litellm.suppress_debug_info = True
    litellm.disable_aiohttp_transport = True  # httpx closes what it opens, and its errors tell what was sent
    return litellm


class LiteLlmGateway:
    """Answers completions through LiteLLM."""

    def __init__(self, environment: Mapping[str, str] = os.environ, secrets: Secrets | None = None) -> None:
        """Load LiteLLM; keys are looked up in ``environment`` at every request, and are known to ``secrets`` then."""
        self._litellm = load()
        self._environment = environment
        self._secrets = secrets or Secrets()

    async def complete(self, completion: Completion) -> CompletionReply:
        """Send one request. Raises ``AmbiguousCall``, or a ``SurefootError`` where nothing was billed."""
        choice = completion.choice
        key = self._key(choice.api_key_env)
        try:
            # its own time-out starts anew with every byte that comes
            async with asyncio.timeout(completion.timeout_seconds + 1):
                response = await self._litellm.acompletion(**self._arguments(completion, key))
        except TimeoutError:
            raise AmbiguousCall(f"{choice.model}: no reply in {completion.timeout_seconds:g} s") from None
        except Exception as error:
            # its exceptions do not unpickle and quote the provider, keys included
            raise sorted_error(error, choice.model, key, self._secrets.mask, choice.api_base) from None
        return _reply(response)

    def _key(self, name: str | None) -> str | None:
        if name is None:
            return None
        value = self._environment.get(name, "").strip()
        if not value:
            raise SecretUnresolved(
                f"the environment variable {name} is not set in the worker that calls models; set it and "
                "restart the worker (surefoot down, then run again)"
            )
        self._secrets.learn(name, value)
        return value

    def _arguments(self, completion: Completion, key: str | None) -> dict[str, Any]:
        choice = completion.choice
        arguments: dict[str, Any] = {
            "model": choice.model,
            "messages": [
                {"role": "system", "content": completion.system},
                {"role": "user", "content": completion.user},
            ],
            "max_tokens": completion.max_output_tokens,
            "timeout": completion.timeout_seconds,
            "num_retries": 0,  # both: either alone leaves the other's default
            "max_retries": 0,
            "drop_params": True,
            "extra_headers": {"Idempotency-Key": quote(completion.effect_id, safe=":/@+=,")},
        }
        if choice.api_base is not None:
            arguments |= {"api_base": choice.api_base, "api_key": "none"}
        if key is not None:
            arguments["api_key"] = key
        if completion.schema is not None and choice.structured_output:
            # a tool's optional arguments are beyond what strict mode can say
            strict = completion.node is not Node.PROPOSE_ACTION
            schema = {"name": completion.node.value, "schema": completion.schema, "strict": strict}
            arguments["response_format"] = {"type": "json_schema", "json_schema": schema}
        return arguments


def _reply(response: Any) -> CompletionReply:
    choices = response.choices or []
    message = choices[0].message if choices else None
    return CompletionReply(
        text=_text(message, "content"),
        reasoning=_text(message, "reasoning_content"),
        finish_reason=str(choices[0].finish_reason or "") if choices else "no choices",
        model=str(response.model or "").rsplit("/", 1)[-1][:200],  # a local server may name a file of its disk
        usage=_usage(getattr(response, "usage", None)),
    )


def _text(message: Any, name: str) -> str:
    value = getattr(message, name, None)
    return value if isinstance(value, str) else ""


def _usage(usage: Any) -> Usage | None:
    """Return what was counted, or None: LiteLLM shows a missing usage as zeros, and no request has no input."""
    input_tokens, output_tokens = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    if not input_tokens or output_tokens is None:
        return None
    prompt = getattr(usage, "prompt_tokens_details", None)
    completion = getattr(usage, "completion_tokens_details", None)
    return Usage(
        input_tokens=input_tokens,
        cached_input_tokens=min(_count(prompt, "cached_tokens") or 0, input_tokens),
        cache_write_tokens=min(_count(prompt, "cache_creation_tokens") or 0, input_tokens),
        output_tokens=output_tokens,
        reasoning_tokens=min(_count(completion, "reasoning_tokens") or 0, output_tokens),
    )


def _count(holder: Any, name: str) -> int | None:
    value = getattr(holder, name, None)
    return value if type(value) is int and 0 <= value <= MAX_TOKENS_COUNTED else None
