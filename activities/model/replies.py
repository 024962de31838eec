"""How a reply is read: strictly, but for code fences and words around the one object."""

import json
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError

from schemas.answers import Answer
from schemas.base import clip
from schemas.calls import ProblemKind, ReplyProblem

AnswerType = TypeVar("AnswerType", bound=Answer)


def read_reply(text: str, finish_reason: str, shape: type[AnswerType]) -> AnswerType | ReplyProblem:
    """Return the answer in ``text``, or what is wrong with it in words that a model can use. Never raises."""
    stripped = text.strip()
    if finish_reason == "length":
        return ReplyProblem(kind=ProblemKind.TRUNCATED, detail="the reply was cut off at its token limit; be brief")
    if not stripped:
        why = f" ({clip(finish_reason, 60)})" if finish_reason not in {"", "stop"} else ""
        return ReplyProblem(kind=ProblemKind.EMPTY, detail=f"the reply was empty{why}")
    try:
        value = _one_object(stripped)
    except (ValueError, RecursionError) as error:
        return ReplyProblem(kind=ProblemKind.NOT_JSON, detail=clip(f"the reply is not one JSON object: {error}"))
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        return ReplyProblem(kind=ProblemKind.INVALID, detail=_in_a_line(error))


def _one_object(text: str) -> dict[str, Any]:
    """Return the object in ``text``, from its first brace to its last: fences and words around it are let pass."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        raise ValueError("it holds no object in braces")
    value: dict[str, Any] = json.loads(
        text[start : end + 1],
        object_pairs_hook=_without_doubles,
        parse_constant=_no_constant,
        strict=False,  # a raw line break inside a string means what it shows
    )
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # infinities and lone surrogates end here
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _in_a_line(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    parts = [f"{'.'.join(str(part) for part in item['loc']) or 'reply'}: {item['msg']}" for item in found[:3]]
    more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
    return clip("; ".join(parts) + more)
