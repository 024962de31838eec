"""The tools there are, as models and the gate see them."""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError

from activities.tools.edit_file import EDIT_FILE
from activities.tools.list_files import LIST_FILES
from activities.tools.read_file import READ_FILE
from activities.tools.run import RUN
from activities.tools.search_files import SEARCH_FILES
from activities.tools.tool import Tool
from activities.tools.write_file import WRITE_FILE
from activities.workspaces.excerpts import line_of
from schemas.base import clip
from schemas.effects import EffectClass
from schemas.errors import UnknownTool

TOOLS: dict[str, Tool[Any]] = {
    tool.name: tool for tool in (RUN, READ_FILE, WRITE_FILE, EDIT_FILE, LIST_FILES, SEARCH_FILES)
}
MAX_PREVIEW_CHARACTERS = 240
MAX_PROBLEM_CHARACTERS = 500
MAX_NAMED_PROBLEMS = 4


@dataclass(frozen=True)
class CheckedAction:
    """What code knows of a proposed action."""

    effect_class: EffectClass
    irreversible: bool
    preview: str
    """The arguments in a line, for people."""
    invalid: str | None
    """What is wrong with it, in words that its author can act on; None where it may be performed."""


class InvalidArguments(Exception):
    """Arguments that a tool cannot take; the text says what to change."""


def tool_guide(names: tuple[str, ...]) -> str:
    """Return names, descriptions and arguments of the tools, for prompts. Raises UnknownTool.

    Bounds of lengths are left out: no model counts characters, and a violation is answered with the bound.
    """
    for name in names:
        if name not in TOOLS:
            raise UnknownTool(f"there is no tool {line_of(name, 60)!r}; the tools are {', '.join(TOOLS)}")
    return "\n\n".join(_describe(TOOLS[name]) for name in names)


def _describe(tool: Tool[Any]) -> str:
    lines = [f"{tool.name}: {tool.description}", "Arguments:"]
    for name, field in argument_schema(tool)["properties"].items():
        need = f"default {json.dumps(field['default'])}" if "default" in field else "required"
        lines.append(f"- {name} ({field['type']}, {need}): {field['description']}")
    return "\n".join(lines)


def argument_schema(tool: Tool[Any]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments, without what says nothing to a model.

    It is the same object every time: whoever needs another one makes a copy.
    """
    arguments: type[BaseModel] = tool.arguments
    return _schema_of(arguments)


@cache  # pydantic takes milliseconds to make those that every proposal is sent with
def _schema_of(arguments: type[BaseModel]) -> dict[str, Any]:
    schema = arguments.model_json_schema()
    properties = {
        name: {key: value for key, value in field.items() if key != "title"}
        for name, field in schema["properties"].items()
    }
    return {
        "type": "object",
        "properties": properties,
        "required": schema.get("required", []),
        "additionalProperties": False,
    }


def check_action(tool: str, arguments_json: str, allowed: tuple[str, ...]) -> CheckedAction:
    """Look at an action as it was proposed; an unknown tool has no safe class and counts as irreversible."""
    found = TOOLS.get(tool)
    if found is None or tool not in allowed:
        problem = clip(f"there is no tool {line_of(tool, 60)!r} here; the tools are {', '.join(allowed)}")
        return CheckedAction(EffectClass.NONE, True, _raw(arguments_json), problem)
    try:
        arguments = parse_arguments(found, arguments_json)
    except InvalidArguments as error:
        return CheckedAction(found.effect_class, found.irreversible, _raw(arguments_json), str(error))
    preview = line_of(found.preview(arguments), MAX_PREVIEW_CHARACTERS)
    return CheckedAction(found.effect_class, found.irreversible, preview, None)


def parse_arguments(tool: Tool[Any], arguments_json: str) -> BaseModel:
    """Return the arguments. Raises InvalidArguments."""
    try:
        arguments: BaseModel = tool.arguments.model_validate_json(arguments_json)
    except ValidationError as error:
        raise InvalidArguments(_explain(tool, error)) from None
    return arguments


def _explain(tool: Tool[Any], error: ValidationError) -> str:
    problems = []
    for found in error.errors(include_url=False, include_context=False)[:MAX_NAMED_PROBLEMS]:
        place = ".".join(map(str, found["loc"])) or "arguments"
        given = "" if found["type"] in ("missing", "json_invalid") else f" (got {line_of(repr(found['input']), 60)})"
        problems.append(f"{place}: {found['msg']}{given}")
    schema = argument_schema(tool)
    takes = ", ".join(name if name in schema["required"] else f"{name} (optional)" for name in schema["properties"])
    return line_of(f"invalid arguments of {tool.name}: {'; '.join(problems)}. It takes {takes}", MAX_PROBLEM_CHARACTERS)


def _raw(arguments_json: str) -> str:
    return line_of(arguments_json, MAX_PREVIEW_CHARACTERS)
