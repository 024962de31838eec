"""Patterns of paths: ``*`` and ``?`` stay within one folder, ``**`` stands for any number of folders."""

import re
from functools import lru_cache


@lru_cache(maxsize=1000)
def compile_glob(pattern: str) -> re.Pattern[str]:
    """Return the pattern as an expression for whole paths; a pattern that ends in ``/`` means all that is below."""
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
            inside = token[1:-1].replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
            inside = f"^/{inside[1:]}" if inside.startswith("!") else inside.replace("^", "\\^")
            expression += f"[{inside}]"
        else:
            expression += re.escape(token)
    return expression
