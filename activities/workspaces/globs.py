"""Patterns of paths: ``*`` and ``?`` stay within one folder, ``**`` stands for any number of folders."""

import re
from functools import lru_cache

RESERVED = ("--", "&&", "||", "~~")  # Python keeps these for set operations and warns of them


@lru_cache(maxsize=1000)
def compile_glob(pattern: str) -> re.Pattern[str]:
    """Return the pattern as an expression for whole paths; a pattern that ends in ``/`` means all that is below.

    Every text is a pattern: what cannot be a set of characters stands for itself.
    """
    if pattern.endswith("/"):
        pattern += "**"
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    expression = ""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            expression += ".*" if last else "(?:[^/]+/)*"
        else:
            expression += _within_folder(part) + ("" if last else "/")
    return re.compile(expression, re.DOTALL)


def matches_any(path: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of the patterns matches the path."""
    return any(compile_glob(pattern).fullmatch(path) for pattern in patterns)


def _within_folder(part: str) -> str:
    """Translate one component; runs of stars are one, so that no pattern takes exponential time."""
    expression = ""
    for token in re.findall(r"\*+|\?|\[!?\]?[^\]]*\]|.", part, re.DOTALL):
        if token.startswith("*"):
            expression += "[^/]*"
        elif token == "?":
            expression += "[^/]"
        elif token.startswith("[") and token.endswith("]") and len(token) > 2:
            expression += _set(token[1:-1]) or re.escape(token)
        else:
            expression += re.escape(token)
    return expression


def _set(inside: str) -> str | None:
    """Translate a set of characters; None where it is none, as with a range that runs backwards."""
    if any(operator in inside for operator in RESERVED):
        return None
    inside = inside.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    expression = f"[^/{inside[1:]}]" if inside.startswith("!") else f"[{inside.replace('^', chr(92) + '^')}]"
    try:
        re.compile(expression)
    except re.error:
        return None
    return expression
