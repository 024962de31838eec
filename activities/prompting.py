"""Prompt templates: one file a node, and how a request's context is put into one."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from schemas.calls import RepairRequest
from schemas.models import Node
from schemas.texts import ContextText

NOTHING = "(none)"
MARK = "mark"  # the place for the delimiters' unguessable word
MARK_LENGTH = 12
PLACE = re.compile(r"\{\{([a-z_]+)\}\}")
SECTIONS = re.compile(r"\A=== system ===\n(.*)\n=== user ===\n(.*)\Z", re.DOTALL)

PLANNING = frozenset({"goal", "instructions", "requirements", "tools", "frame", "steering", "budget", "limits"})
JUDGING = frozenset({"step", "instruction", "frame_before", "frame", "difference", "observations", "checks"})
SUMMARIZING = frozenset({"step", "instruction", "observations", "difference"})
EVIDENCE = frozenset({"frame", "frame_before", "difference", "observations", "checks"})
"""Slots whose texts a verdict may cite."""

SLOTS: dict[Node, frozenset[str]] = {
    Node.PLAN: PLANNING,
    Node.REPLAN: PLANNING | {"plan", "learned", "verdict", "observations", "action_summary"},
    Node.IS_STEP_DONE: frozenset({"step", "instruction", "frame", "observations", "checks"}),
    Node.PROPOSE_ACTION: PLANNING | {"plan", "step", "instruction", "observations", "verdict", "action_summary"},
    Node.SUMMARIZE_ACTIONS: SUMMARIZING,
    Node.VALIDATE_PLAN_STEP: JUDGING,
    Node.IS_STEP_DONE_BY_VALIDATION: JUDGING,
    Node.SUMMARIZE_PLAN_STEP: SUMMARIZING,
}
"""The places that each template has."""


class PromptError(ValueError):
    """A template without its two sections, or a context text that the template has no place for: a fault of ours."""


@dataclass(frozen=True)
class Prompt:
    """A prompt, ready to send."""

    system: str
    user: str
    evidence: Mapping[str, Sequence[str]]
    """Texts that may be cited, by the label that they are shown under."""


def template(node: Node) -> str:
    """Return the template of ``node``, as its file has it."""
    return (resources.files("activities.prompts") / f"{node.value}.md").read_text("utf-8")


def templates() -> dict[Node, str]:
    """Return every node's template; a run freezes them at its start."""
    return {node: template(node) for node in Node}


def slots_of(text: str) -> frozenset[str]:
    """Return the names of a template's places."""
    return frozenset(PLACE.findall(text)) - {MARK}


def render(
    text: str, context: Sequence[tuple[ContextText, str]], effect_id: str, repair: tuple[RepairRequest, str] | None
) -> Prompt:
    """Return the template ``text`` with ``context`` (each text with its content) in its places.

    Untrusted texts stand between delimiters with a word that nobody can know before: it comes from the effect id, and
    from a further hash where a text happens to hold it. Raises PromptError.
    """
    sections = SECTIONS.match(text)
    if sections is None:
        raise PromptError("a template needs the lines `=== system ===` and `=== user ===`")
    homeless = {item.slot for item, _ in context} - slots_of(text)
    if homeless:
        raise PromptError(f"the template has no place for {', '.join(sorted(homeless))}")
    quoted = [content for _, content in context] + ([repair[1]] if repair else [])
    mark = _mark(effect_id, quoted)
    values = {slot: _slot(slot, context, mark) for slot in slots_of(text)} | {MARK: mark}
    system, user = (PLACE.sub(lambda place: values[place[1]], section.strip()) for section in sections.groups())
    evidence: dict[str, list[str]] = {}
    for item, content in context:
        if item.slot in EVIDENCE and item.label:
            evidence.setdefault(item.label, []).append(content)
    return Prompt(system=system, user=user + (_repair(*repair, mark) if repair else ""), evidence=evidence)


def _mark(effect_id: str, texts: Sequence[str]) -> str:
    word = hashlib.sha256(effect_id.encode()).hexdigest()
    while any(word[:MARK_LENGTH] in text for text in texts):
        word = hashlib.sha256(word.encode()).hexdigest()
    return word[:MARK_LENGTH]


def _slot(slot: str, context: Sequence[tuple[ContextText, str]], mark: str) -> str:
    parts = [_one(item, content, mark) for item, content in context if item.slot == slot and content.strip()]
    return "\n\n".join(parts) or NOTHING


def _one(item: ContextText, content: str, mark: str) -> str:
    if item.untrusted:
        return _delimited(item.label or item.slot, content, mark)
    return f"[{item.label}]\n{content}" if item.label else content


def _delimited(label: str, content: str, mark: str) -> str:
    return f"<<<DATA {label} {mark}>>>\n{content}\n<<<END {label} {mark}>>>"


def _repair(request: RepairRequest, reply: str, mark: str) -> str:
    return (
        "\n\n# Second attempt\n\n"
        "All of the above was asked before. What came back, between the next two marks, could not be read. It proves "
        f"nothing and must not be cited:\n<<<REJECTED {mark}>>>\n{reply}\n<<<END REJECTED {mark}>>>\n"
        f"Fault found by the parser: {request.problem}\n"
        "Do not comment on this fault. Respond to the request above with one JSON object in the form it asks for, "
        "and with nothing else."
    )
