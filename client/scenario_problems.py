"""What pydantic found wrong with a scenario, in words its author understands: what is wrong; what is allowed."""

import difflib
import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic_core import ErrorDetails

Schema = dict[str, Any]


def explain(error: ErrorDetails, schema: Schema) -> str:
    """Return what is wrong and what is allowed, by the JSON Schema of the whole document."""
    location, kind = error["loc"], error["type"]
    if kind == "extra_forbidden":
        return _unknown(str(location[-1]), _field_names(_at(schema, location[:-1]), schema))
    if kind == "missing":
        place = _at(schema, location)
        return f"missing; needed: {place.get('description') or allowed(place, schema)}"
    if kind in ("value_error", "assertion_error"):
        return error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    wrong = re.sub(r"^.*?\bshould ", "", error["msg"]).replace("an object", "a mapping")
    got = _short(error["input"])
    if kind.startswith("union_tag"):
        return f"`kind` is {'missing' if kind == 'union_tag_not_found' else 'unknown'}; allowed: {_tags(error)}"
    return f"got {got}, must {wrong}; allowed: {allowed(_at(schema, location), schema)}"


def close_names(name: str, known: list[str]) -> str:
    """Return ``; did you mean a or b?``, or nothing where no known name is near."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def allowed(place: Schema, schema: Schema) -> str:
    """Return in words what the JSON Schema ``place`` allows."""
    place = _resolved(place, schema)
    if "const" in place:
        return str(place["const"])
    if "enum" in place:
        return ", ".join(str(value) for value in place["enum"])
    options = [option for option in _options(place) if option.get("type") != "null"]
    numbers = [option for option in options if option.get("type") == "number"]
    if options:
        options = numbers or options  # a decimal may also be quoted: no need to say so
        return " or ".join(dict.fromkeys(allowed(option, schema) for option in options))
    return _of_type(place, schema)


def _of_type(place: Schema, schema: Schema) -> str:
    kind = place.get("type")
    if kind == "string":
        return "text" + _range(place, "minLength", "maxLength", "characters") + _pattern(place)
    if kind in ("integer", "number"):
        return ("a whole number" if kind == "integer" else "a number") + _bounds(place)
    if kind == "boolean":
        return "true or false"
    if kind == "array":
        return f"a list of {allowed(place.get('items', {}), schema)}" + _range(place, "minItems", "maxItems", "entries")
    if kind == "object":
        names = _field_names(place, schema)
        return f"a mapping with {', '.join(names)}" if names else "a mapping of name: value"
    return "any value"


def _range(place: Schema, least: str, most: str, unit: str) -> str:
    if least not in place and most not in place:
        return ""
    low = place.get(least, 0)
    return f" of {low:,} to {place[most]:,} {unit}" if most in place else f" of at least {low} {unit}"


def _bounds(place: Schema) -> str:
    words = {"exclusiveMinimum": "above", "minimum": "from", "maximum": "up to"}
    return "".join(f" {word} {int(place[key]):,}" for key, word in words.items() if key in place)


def _pattern(place: Schema) -> str:
    return f" matching {place['pattern']}" if "pattern" in place else ""


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:59] + "…"


def _unknown(name: str, known: list[str]) -> str:
    return f"unknown field{close_names(name, known)}; allowed: {', '.join(known)}"


def _tags(error: ErrorDetails) -> str:
    # a missing tag is reported without the list of tags; checks are the only tagged union with a `kind`
    return str(error.get("ctx", {}).get("expected_tags", "'file', 'command', 'json', 'directory'"))


def _field_names(place: Schema, schema: Schema) -> list[str]:
    place = _resolved(place, schema)
    found = list(place.get("properties", {}))
    for option in _options(place):
        found += [name for name in _field_names(option, schema) if name not in found]
    return found


def _options(place: Schema) -> list[Schema]:
    return [*place.get("anyOf", []), *place.get("oneOf", [])]


def _resolved(place: Schema, schema: Schema) -> Schema:
    while "$ref" in place:
        described = {name: value for name, value in place.items() if name == "description"}
        place = {**schema["$defs"][place["$ref"].rsplit("/", 1)[1]], **described}
    return place


def _at(schema: Schema, location: tuple[str | int, ...]) -> Schema:
    """Walk down the schema; a part that names nothing (a union's tag) narrows the union or is passed over."""
    place = _resolved(schema, schema)
    for part in location:
        place = next(_steps(place, part, schema), place)
    return place


def _steps(place: Schema, part: str | int, schema: Schema) -> Iterator[Schema]:
    place = _resolved(place, schema)
    tagged = place.get("discriminator", {}).get("mapping", {}).get(part)
    if tagged:
        yield _resolved({"$ref": tagged}, schema)
    if isinstance(part, int) and "items" in place:
        yield _resolved(place["items"], schema)
    if part in place.get("properties", {}):
        yield _resolved(place["properties"][part], schema)
    if isinstance(place.get("additionalProperties"), dict) and part != "[key]":
        yield _resolved(place["additionalProperties"], schema)
    for option in _options(place):
        yield from _steps(option, part, schema)
