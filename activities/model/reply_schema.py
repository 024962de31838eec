"""The JSON Schema that goes with a request: closed, every field required, so that a model cannot leave the form."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import BaseModel

from schemas.answers import SHAPE, ActionsAnswer, VerdictAnswer
from schemas.models import Node

LEFT_OUT = {"title", "default", "description"}
BOUNDS = {"minLength", "maxLength"}  # strict mode of some providers refuses them; a local server keeps to them
LARGEST_BOUND = 2000  # local servers refuse grammars with longer repetitions


@dataclass(frozen=True)
class Offer:
    """What a reply may name."""

    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Argument schema of each tool that may be proposed."""
    max_actions: int = 0
    labels: Collection[str] = ()
    """Labels that a verdict may cite."""


def reply_schema(node: Node, offer: Offer, bounded: bool) -> dict[str, Any] | None:
    """Return the schema for ``node``, or None for free text; ``bounded`` keeps the length of strings."""
    shape = SHAPE.get(node)
    if shape is None:
        return None
    full = _full_schema(shape)
    schema: dict[str, Any] = _pruned(full, full.get("$defs", {}), bounded)
    _require_all(schema)
    if shape is ActionsAnswer:
        _offer_tools(schema["properties"]["actions"], offer, bounded)
    if shape is VerdictAnswer:
        _ask_for_citation(schema["properties"], offer.labels)
    return schema


@cache  # pydantic takes a millisecond to make one, and every call needs it; pruning copies it
def _full_schema(shape: type[BaseModel]) -> dict[str, Any]:
    return shape.model_json_schema()


def _offer_tools(actions: dict[str, Any], offer: Offer, bounded: bool) -> None:
    tools = [_action(name, offer.arguments[name], bounded) for name in sorted(offer.arguments)]
    actions["maxItems"] = max(1, offer.max_actions)
    if tools:
        actions["items"] = {"anyOf": tools}


def _ask_for_citation(properties: dict[str, Any], labels: Collection[str]) -> None:
    """Leave out the null that a reply may hold: a small model that may leave the citation out does so."""
    properties["citation"] = next(form for form in properties["citation"]["anyOf"] if form["type"] == "object")
    if labels:
        properties["citation"]["properties"]["source"] = {"type": "string", "enum": sorted(set(labels))}


def _action(name: str, arguments: Mapping[str, Any], bounded: bool) -> dict[str, Any]:
    shape = _pruned(arguments, arguments.get("$defs", {}), bounded)
    shape.setdefault("additionalProperties", False)
    return {
        "type": "object",
        "properties": {"tool": {"type": "string", "enum": [name]}, "arguments": shape},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }


def _require_all(schema: Any) -> None:
    """Close our own schema: what has a default is written out all the same."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            schema["required"] = list(schema["properties"])
            schema["additionalProperties"] = False
        for value in schema.values():
            _require_all(value)
    elif isinstance(schema, list):
        for value in schema:
            _require_all(value)


def _pruned(schema: Any, definitions: Mapping[str, Any], bounded: bool) -> Any:
    """Return ``schema`` with its references filled in and without words that cost tokens and bind nothing."""
    if isinstance(schema, list):
        return [_pruned(item, definitions, bounded) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        return _pruned(definitions[schema["$ref"].rsplit("/", 1)[-1]], definitions, bounded)
    dropped = LEFT_OUT | {"$defs"} | (set() if bounded else BOUNDS)
    return {
        name: {key: _pruned(item, definitions, bounded) for key, item in value.items()}
        if name == "properties"  # a property may be called title
        else _pruned(value, definitions, bounded)
        for name, value in schema.items()
        if name not in dropped and not (name == "maxLength" and value > LARGEST_BOUND)
    }
