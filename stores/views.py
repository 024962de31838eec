"""Views of a text: without blanks, and with escapes undone, each knowing where its characters stand in the text."""

import html
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

MAX_DEPTH = 3  # escapes inside of escapes: JSON in JSON, or JSON in a URL
_HEX = "[0-9a-fA-F]"
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0"}


@dataclass(frozen=True)
class _Rule:
    """How one kind of escape is undone."""

    sign: str
    """A text without it has none to undo."""
    pattern: re.Pattern[str]
    """One escaped character."""
    undo: Callable[[re.Match[str]], str]
    """What it stands for."""


def _utf8(escape: str, two: str, three: str, four: str, more: str) -> str:
    """Return a pattern of one character whose UTF-8 bytes are escaped one by one."""
    return "|".join(f"{escape}{first}(?:{escape}{more}){{{rest}}}" for first, rest in ((two, 1), (three, 2), (four, 3)))


_HEX_BYTES = (f"[cCdD]{_HEX}", f"[eE]{_HEX}", "[fF][0-7]", f"[89abAB]{_HEX}")
_OCTAL_BYTES = ("3[0-3][0-7]", "3[45][0-7]", "36[0-7]", "2[0-7][0-7]")
_PERCENT = f"%[0-7]{_HEX}|" + _utf8("%", *_HEX_BYTES)
_BACKSLASHED = "|".join(
    (
        rf"\\u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}|\\u{_HEX}{{4}}",
        _utf8(r"\\x", *_HEX_BYTES) + rf"|\\x{_HEX}{{2}}",
        _utf8(r"\\", *_OCTAL_BYTES) + r"|\\[0-3][0-7]{2}",
        r"\\.",
    )
)


def _from_percent(found: re.Match[str]) -> str:
    if found[0] == "+":
        return " "
    return bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "replace")


def _from_backslash(found: re.Match[str]) -> str:
    escaped = found[0][1:]
    if len(escaped) == 1:
        return _CONTROLS.get(escaped, escaped)
    if escaped.startswith("u"):
        units = "".join(part.zfill(4) for part in escaped[1:].split("\\u"))
        return bytes.fromhex(units).decode("utf-16-be", "surrogatepass")
    if escaped.startswith("x"):
        data = bytes.fromhex(escaped[1:].replace("\\x", ""))
    else:
        data = bytes(int(part, 8) & 255 for part in escaped.split("\\"))
    return data.decode("utf-8") if len(data) > 1 else data.decode("latin-1")


def _strict(undo: Callable[[re.Match[str]], str]) -> Callable[[re.Match[str]], str]:
    """Leave alone what looks like an escape and is none."""

    def undone(found: re.Match[str]) -> str:
        try:
            return undo(found)
        except UnicodeDecodeError:
            return found[0]

    return undone


_BLANKS = _Rule("", re.compile(r"[\s\x00␀]+"), lambda _: "")
_BACKSLASH = _Rule("\\", re.compile(_BACKSLASHED, re.DOTALL), _strict(_from_backslash))
_URL = _Rule("%", re.compile(_PERCENT), _from_percent)
_FORM = _Rule("+", re.compile(rf"\+|{_PERCENT}"), _from_percent)
_HTML = _Rule("&", re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]\w{1,31});"), lambda f: html.unescape(f[0]))
_SHELL = _Rule("'", re.compile(r"""'\\''|'"'"'"""), lambda _: "'")
_COLOUR = _Rule("\x1b", re.compile(r"\x1b\[[0-9;]*[A-Za-z]"), lambda _: "")
_PAIRS = _Rule(":", re.compile(rf"(?<!\w)(?:{_HEX}{{2}}:){{7,}}{_HEX}{{2}}(?!\w)"), lambda f: f[0].replace(":", ""))
_RULES = (_BACKSLASH, _URL, _HTML, _SHELL, _COLOUR, _PAIRS)


class View:
    """A text in which one kind of escape is undone, or the text itself."""

    def __init__(self, text: str, source: "View | None" = None, rule: _Rule = _BLANKS) -> None:
        """``text`` is what ``rule`` makes of ``source``."""
        self.text = text
        self._source = source
        self._rule = rule

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Return where the characters from ``first`` to before ``last`` stand in the text that all began with."""
        if self._source is None:
            return first, last
        return self._source.span(self._place(first)[0], self._place(last - 1)[1])

    def undone(self, rule: _Rule) -> "View":
        """Return the view of this one in which ``rule`` is applied."""
        return View(rule.pattern.sub(rule.undo, self.text), self, rule)

    def squeezed(self) -> "View":
        """Return the view of this one without blanks."""
        return View(squeeze(self.text), self, _BLANKS)

    @cached_property
    def _edits(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """What the rule has replaced: where each begins and ends here, and where in the source."""
        assert self._source
        edits: tuple[list[int], list[int], list[int], list[int]] = ([], [], [], [])
        moved = 0
        for found in self._rule.pattern.finditer(self._source.text):
            begin, size = found.start() + moved, len(self._rule.undo(found))
            for column, place in zip(edits, (begin, begin + size, found.start(), found.end()), strict=True):
                column.append(place)
            moved = begin + size - found.end()
        return edits

    def _place(self, place: int) -> tuple[int, int]:
        """Return where one character stands in the source."""
        begins, ends, firsts, lasts = self._edits
        edit = bisect_right(begins, place) - 1
        if edit < 0:
            return place, place + 1
        if place < ends[edit]:
            return firsts[edit], lasts[edit]
        moved = lasts[edit] + place - ends[edit]
        return moved, moved + 1


def squeeze(text: str) -> str:
    """Return ``text`` without blanks: whitespace, line ends and NUL characters (UTF-16), also where these are shown."""
    return "".join(text.split()).replace("\x00", "").replace("␀", "")


def views(text: str, forms_of_web: bool) -> Iterator[View]:
    """Yield ``text`` as it is and with its escapes undone, also escapes in escapes, always without blanks.

    With ``forms_of_web`` also with every ``+`` taken for a blank.
    """
    rules = (*_RULES, _FORM) if forms_of_web else _RULES
    seen: set[str] = set()
    level = [View(text)]
    for _ in range(MAX_DEPTH + 1):
        for view in level:
            seen.add(view.text)
            yield view.squeezed()
        level = list(_undone(level, rules, seen))


def _undone(level: list[View], rules: tuple[_Rule, ...], seen: set[str]) -> Iterator[View]:
    for view in level:
        for rule in rules:
            if rule.sign in view.text:
                new = view.undone(rule)
                if new.text not in seen:
                    seen.add(new.text)
                    yield new
