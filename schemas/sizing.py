"""How large a prompt will be, known before it is rendered: what a workflow reserves for it."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from schemas.calls import RepairRequest
from schemas.texts import ContextText, TextRef, estimate_tokens

FRAMING_TOKENS = 24
"""Role markers around the two messages."""
TEXT_OVERHEAD_TOKENS = 28
"""Delimiters around one text and its place in the reply's schema, without its label."""
REQUEST_OVERHEAD_TOKENS = 480
"""Message framing, the reply's JSON Schema and the sentences around a repair."""
TOOL_OVERHEAD_TOKENS = 200
"""The JSON Schema of one tool's arguments, in the reply's schema."""


def prompt_tokens(
    template: TextRef, context: Iterable[ContextText], repair: RepairRequest | None = None, tools: int = 0
) -> int:
    """Return an upper bound of the input tokens of a request; the activity that renders it never finds more.

    ``tools`` is the number of tools that may be proposed.
    """
    total = template.tokens + REQUEST_OVERHEAD_TOKENS + tools * TOOL_OVERHEAD_TOKENS
    total += sum(_text_tokens(text) for text in context)
    if repair is not None:
        total += repair.reply.tokens + estimate_tokens(repair.problem) + TEXT_OVERHEAD_TOKENS
    return total


def _text_tokens(text: ContextText) -> int:
    size = estimate_tokens(text.inline) if text.ref is None else text.ref.tokens
    return size + 3 * estimate_tokens(text.label) + TEXT_OVERHEAD_TOKENS


def rendered_tokens(system: str, user: str, reply_schema: Mapping[str, Any] | None) -> int:
    """Return the input tokens of a rendered request, the schema of its reply included."""
    schema = json.dumps(reply_schema) if reply_schema else ""
    return estimate_tokens(system) + estimate_tokens(user) + estimate_tokens(schema) + FRAMING_TOKENS
