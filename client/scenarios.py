"""Scenario files: read, checked as a whole, and every problem named with file, line and field."""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from client.problems import BadInput
from client.scenario_problems import close_names, explain
from client.yaml_document import MAX_BYTES, Document, Fault, Location, Unreadable, dotted, read_document
from schemas.answers import SHAPE
from schemas.base import Frozen
from schemas.models import REHEARSED, Node
from schemas.rehearsal import PLACE, Rehearsal, strings
from schemas.scenario import Scenario, ScenarioModels
from schemas.tools import ARGUMENTS
from stores.model_prices import close_names as close_models
from stores.model_prices import look_up

Wanted = TypeVar("Wanted", bound=Frozen)

_TAGS = ("name", "entry", "file", "command", "json", "directory")
RULE_OF_WHOLE: dict[type[Frozen], Location] = {Scenario: ("models",)}
"""The field to point at where a rule of the whole document is broken: a rehearsed tier needs a script."""
SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a scenario."""

    file: str
    """The file as it was named."""
    line: int
    """Line, from 1."""
    field: str
    """The field, dotted; empty where the file as a whole is meant."""
    text: str
    """What is wrong; what is allowed."""

    def __str__(self) -> str:
        """Return ``file:line: field: what is wrong; what is allowed``."""
        return f"{self.file}:{self.line}: " + (f"{self.field}: " if self.field else "") + self.text


class ScenarioError(BadInput):
    """A scenario that cannot be run; the author must mend it. Nothing was started."""

    def __init__(self, problems: list[Problem]) -> None:
        """Keep all problems, in the order of the file."""
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


@dataclass(frozen=True)
class ScenarioFile:
    """A valid scenario and the file it came from."""

    path: Path
    """The file."""
    scenario: Scenario
    """What it says."""
    document: Document
    """Its lines."""

    def problem(self, location: Location, text: str) -> Problem:
        """Return a problem at ``location`` of this file."""
        return Problem(str(self.path), self.document.line(location), dotted(location), text)

    def beside(self, name: str) -> Path:
        """Return the path of a file that the scenario names, relative to the scenario's own folder."""
        return self.path.parent / name


def load(path: Path) -> ScenarioFile:
    """Return the scenario in ``path``. Raises ScenarioError with every problem found."""
    document = _document(path)
    if document.node(("replies",)) and not document.node(("goal",)):
        text = "a rehearsed model's script, not a scenario; name the scenario whose field `rehearsal` names this file"
        raise ScenarioError([_problem(path, Fault(document.line(("replies",)), "", text))])
    scenario, found = _validated(document, Scenario)
    found += _missing_files(document, path.parent)
    if scenario is None:  # otherwise they are looked at with prices, keys and settings
        found += _unknown_models(document)
    return ScenarioFile(path, _flawless(path, document, scenario, found), document)


def load_rehearsal(path: Path) -> Rehearsal:
    """Return the rehearsed model's script in ``path``. Raises ScenarioError with every problem found."""
    document = _document(path)
    rehearsal, found = _validated(document, Rehearsal)
    if rehearsal is not None:
        found = list(_unusable_replies(document, rehearsal))
    return _flawless(path, document, rehearsal, found)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of scenario files, for editors."""
    return {"$schema": SCHEMA_DIALECT, **Scenario.model_json_schema(), "title": "Surefoot scenario"}


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise Unreadable(Fault(1, "", "no such file")) from error
    except IsADirectoryError as error:
        raise Unreadable(Fault(1, "", "a folder; name the scenario file in it")) from error
    except OSError as error:
        raise Unreadable(Fault(1, "", f"cannot be read: {error.strerror}")) from error


def _document(path: Path) -> Document:
    try:
        return read_document(_bytes(path))
    except Unreadable as error:
        raise ScenarioError([_problem(path, error.fault)]) from error


def _flawless(path: Path, document: Document, value: Wanted | None, found: list[Fault]) -> Wanted:
    """Return ``value``, or raise all faults in the order of the file; the document's own say more than what follows."""
    faults = {fault.field: fault for fault in (*found, *document.faults)}
    if faults or value is None:
        ordered = sorted(faults.values(), key=lambda fault: (fault.line, fault.field))
        raise ScenarioError([_problem(path, fault) for fault in ordered])
    return value


def _problem(path: Path, fault: Fault) -> Problem:
    return Problem(str(path), fault.line, fault.field, fault.text)


def _validated(document: Document, model: type[Wanted]) -> tuple[Wanted | None, list[Fault]]:
    try:
        return model.model_validate_json(document.json_text, strict=True), []
    except ValidationError as error:
        whole = model.model_json_schema()
        return None, [
            Fault(document.line(at), dotted(_without_tags(document, at)), explain(item, whole))
            for item in error.errors(include_url=False)
            if not _follows(item)
            for at in [item["loc"] or RULE_OF_WHOLE.get(model, ())]
        ]


def _unusable_replies(document: Document, rehearsal: Rehearsal) -> Iterator[Fault]:
    """Check what is written as a value; a text is answered as it stands, so that unusable replies can be rehearsed."""
    for number, candidate in enumerate(rehearsal.replies):
        shape = SHAPE.get(candidate.node)
        if shape is None or isinstance(candidate.reply, str):
            continue
        try:
            shape.model_validate(candidate.reply)
        except ValidationError as error:
            whole = shape.model_json_schema()
            for item in error.errors(include_url=False):
                at = ("replies", number, "reply", *item["loc"])
                said = f"{explain(item, whole)} (a reply of {candidate.node.value})"
                yield Fault(document.line(at), dotted(at), said)
        else:
            if candidate.node is Node.PROPOSE_ACTION:
                yield from _unusable_actions(document, number, candidate.reply)


def _unusable_actions(document: Document, number: int, reply: Any) -> Iterator[Fault]:
    """Check tools and arguments; what a pattern will fill in is not known yet."""
    for position, action in enumerate(reply["actions"]):
        at: Location = ("replies", number, "reply", "actions", position)
        arguments = ARGUMENTS.get(action["tool"])
        if arguments is None:
            named: Location = (*at, "tool")
            near = close_names(action["tool"], [*ARGUMENTS])
            text = f"there is no tool {action['tool']}{near}; the tools are {', '.join(ARGUMENTS)}"
            yield Fault(document.line(named), dotted(named), text)
            continue
        if any(PLACE.search(text) for text in strings(action["arguments"])):
            continue
        try:
            arguments.model_validate(action["arguments"])
        except ValidationError as error:
            whole = arguments.model_json_schema()
            for item in error.errors(include_url=False):
                place: Location = (*at, "arguments", *item["loc"])
                yield Fault(document.line(place), dotted(place), f"{explain(item, whole)} (of {action['tool']})")


def _unknown_models(document: Document) -> Iterator[Fault]:
    """Check the names of models in a scenario that is wrong elsewhere, so that all is told at once."""
    if importlib.util.find_spec("litellm") is None:  # it knows the names
        return
    for name in ScenarioModels.model_fields:
        at: Location = ("models", name)
        node = document.node(at)
        at = at if isinstance(node, yaml.ScalarNode) else (*at, "model")
        found = document.node(at)
        own = document.node(("models", name, "api_base")) is not None
        if own or not isinstance(found, yaml.ScalarNode) or not found.tag.endswith(":str"):
            continue
        model = found.value
        if model != REHEARSED and look_up(model) is None:
            yield Fault(document.line(at), dotted(at), unknown_model(model))


def unknown_model(model: str) -> str:
    """Say that nobody knows a model of that name."""
    near = [REHEARSED] if close_names(model, [REHEARSED]) else close_models(model)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"unknown model {model}{meant}; a model of your own service needs its api_base"


def _follows(error: ErrorDetails) -> bool:
    """Whether a list is only called too short because its entries were refused."""
    return error["type"] == "too_short" and len(error["input"]) >= error["ctx"]["min_length"]


def _without_tags(document: Document, location: Location) -> Location:
    """Leave out the parts of pydantic's location that are no fields: tags of unions, and ``[key]``."""
    kept: Location = ()
    for n, part in enumerate(location):
        is_field = n == len(location) - 1 and isinstance(document.node(kept), yaml.MappingNode)
        is_tag = part in _TAGS and document.node((*kept, part)) is None and not is_field
        if part != "[key]" and not is_tag:
            kept = (*kept, part)
    return kept


def _missing_files(document: Document, folder: Path) -> Iterator[Fault]:
    """Check the files that the document names even where other fields are wrong."""
    for location, kind in ((("rehearsal",), "file"), (("workspace", "seed"), "folder")):
        node = document.node(location)
        name = getattr(node, "value", None)
        if node is None or not isinstance(name, str) or not name or node.tag.endswith(":null"):
            continue
        place = folder / name
        if not (place.is_file() if kind == "file" else place.is_dir()):
            wrong = f"{name} is no {kind}" if place.exists() else f"no such {kind}: {name}"
            text = f"{wrong}; paths are relative to the scenario's folder {folder.resolve()}"
            yield Fault(document.line(location), dotted(location), text)
