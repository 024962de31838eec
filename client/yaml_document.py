"""YAML read with suspicion: what a person meant, as JSON text, with the line of every value.

YAML 1.1 turns ``yes`` into true, ``1:30`` into 90 and ``0123`` into 83. Such spellings are refused with the line and
what to write instead; so are keys that stand twice, tags, merge keys, and aliases that would blow up.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

MAX_BYTES = 1_000_000
MAX_DEPTH = 50
MAX_VALUES = 50_000

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,30})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,3})?")
_BOOLEANS = {"true": "true", "True": "true", "TRUE": "true", "false": "false", "False": "false", "FALSE": "false"}
_TEXT_TAGS = {_TAG + name for name in ("str", "timestamp", "value")}
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Location = tuple[str | int, ...]


@dataclass(frozen=True)
class Fault:
    """Something that is wrong with the document itself."""

    line: int
    """Line, from 1."""
    field: str
    """Path of the value, dotted; empty where there is none."""
    text: str
    """What is wrong; what is allowed."""


class Unreadable(Exception):
    """The text is no YAML document that could be looked at further."""

    def __init__(self, fault: Fault) -> None:
        """Keep the fault."""
        super().__init__(fault.text)
        self.fault = fault


@dataclass
class Document:
    """A YAML document with its lines and what is wrong with it."""

    root: yaml.MappingNode
    """The node graph."""
    json_text: str = ""
    """The document as JSON text; numbers keep their digits."""
    faults: list[Fault] = field(default_factory=list)
    """What is wrong with it, in the order of the file."""

    def line(self, location: Location) -> int:
        """Return the line of the deepest value of ``location`` that exists; a mapping's entry has its key's line."""
        return _find(self.root, location)[1]

    def node(self, location: Location) -> yaml.Node | None:
        """Return the node at ``location``, or None."""
        return _find(self.root, location)[0]


def dotted(location: Location) -> str:
    """Return ``location`` as people write it: ``requirements[2].check.path``."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def read_document(data: bytes) -> Document:
    """Return the document in ``data``. Raises Unreadable where there is none; other faults are collected in it."""
    root = _compose(_decode(data))
    document = Document(root)
    pieces = _Json(document.faults)
    document.json_text = pieces.render(root, (), frozenset())
    return document


def _decode(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise Unreadable(Fault(1, "", f"the file has {len(data):,} bytes; allowed are {MAX_BYTES:,}"))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable(Fault(line, "", "the file is not UTF-8 text; save it as UTF-8")) from error


def _compose(text: str) -> yaml.MappingNode:
    try:
        _measure(text)
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise Unreadable(_from_yaml(text, error)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise Unreadable(Fault(line, "", "a control character; remove it")) from error
    if root is None:
        raise Unreadable(Fault(1, "", "the file is empty; `surefoot scenario schema` lists what belongs in it"))
    if not isinstance(root, yaml.MappingNode):
        raise Unreadable(Fault(_line(root), "", "not a mapping; a scenario is a list of `field: value` lines"))
    return root


def _from_yaml(text: str, error: yaml.MarkedYAMLError) -> Fault:
    mark = error.problem_mark or error.context_mark
    number = mark.line if mark else 0
    lines = text.splitlines() or [""]
    shown = lines[min(number, len(lines) - 1)]
    if "\t" in shown[: len(shown) - len(shown.lstrip())] or "'\\t'" in str(error.problem):
        return Fault(number + 1, "", "a tab in the indentation; indent with spaces")
    about = " ".join(part for part in (error.context, error.problem) if part)
    return Fault(number + 1, "", f"not YAML: {about}")


def _measure(text: str) -> None:
    """Refuse what composing could not survive: it recurses, and an event stream does not."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        line = event.start_mark.line + 1 if event.start_mark else 1
        if depth > MAX_DEPTH:
            raise Unreadable(Fault(line, "", f"nested deeper than {MAX_DEPTH} levels"))
        if documents > 1:
            raise Unreadable(Fault(line, "", "a second document (`---`); a file holds one"))


class _Json:
    """Renders nodes as JSON text and notes what is wrong with them."""

    def __init__(self, faults: list[Fault]) -> None:
        self._faults = faults
        self._values = 0

    def render(self, node: yaml.Node, at: Location, inside: frozenset[int]) -> str:
        self._values += 1
        if self._values > MAX_VALUES:
            text = f"more than {MAX_VALUES:,} values once its aliases are written out"
            raise Unreadable(Fault(_line(node), dotted(at), text))
        if id(node) in inside:
            raise Unreadable(Fault(_line(node), dotted(at), "an alias inside of what it stands for"))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, at)
        inside = inside | {id(node)}
        if isinstance(node, yaml.SequenceNode):
            self._expect_tag(node, at, "seq")
            return "[" + ",".join(self.render(child, (*at, n), inside) for n, child in enumerate(node.value)) + "]"
        self._expect_tag(node, at, "map")
        return "{" + ",".join(self._entries(node, at, inside)) + "}"

    def _entries(self, node: yaml.Node, at: Location, inside: frozenset[int]) -> Iterator[str]:
        seen: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fault(key, at, "a key that is not a word; write `name: value`")
                continue
            if key.tag == _TAG + "merge":
                self._fault(key, at, "merge keys (`<<`) are not supported; write the fields out")
                continue
            if key.value in seen:
                self._fault(key, (*at, key.value), f"stands twice; first on line {seen[key.value]}")
                continue
            seen[key.value] = _line(key)
            yield f"{json.dumps(key.value)}:{self.render(value, (*at, key.value), inside)}"

    def _scalar(self, node: yaml.ScalarNode, at: Location) -> str:
        text, kind = node.value, node.tag.removeprefix(_TAG)
        if node.tag in _TEXT_TAGS or node.style in ("'", '"', "|", ">"):
            return json.dumps(text)
        if kind == "null":
            return "null"
        if kind == "bool" and text in _BOOLEANS:
            return _BOOLEANS[text]
        plain = {"int": _INTEGER, "float": _NUMBER}.get(kind)
        if plain and plain.fullmatch(text):
            return str(text)
        self._fault(node, at, _trap(text, kind))
        return "null"

    def _expect_tag(self, node: yaml.Node, at: Location, name: str) -> None:
        if node.tag != _TAG + name:
            self._fault(node, at, f"the tag {node.tag.replace(_TAG, '!!')} is not allowed; leave it out")

    def _fault(self, node: yaml.Node, at: Location, text: str) -> None:
        self._faults.append(Fault(_line(node), dotted(at), text))


def _trap(text: str, kind: str) -> str:
    if kind == "bool":
        return f"YAML reads {text} as a truth value; write true or false, or quote it: '{text}'"
    if kind in ("int", "float"):
        return f"YAML reads {text} as an unusual number; write it in plain decimals, or quote it: '{text}'"
    return f"the tag !!{kind} is not allowed; leave it out"


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _find(root: yaml.Node, location: Location) -> tuple[yaml.Node | None, int]:
    """Walk down as far as the graph goes; parts that are no keys (a union's tag) are passed over."""
    node, line, complete = root, _line(root), True
    for part in location:
        child = _child(node, part)
        complete = child is not None
        if child is not None:
            key, node = child
            line = _line(key)
    return (node if complete else None), line


def _child(node: yaml.Node, part: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == str(part)), None)
    return None
