"""Masking: known secret values replaced in texts, in whatever common encoding they stand there."""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from urllib.parse import quote, quote_plus

SHORTEST_SECRET = 8  # characters; a shorter value would blank ordinary words
SHORTEST_LINE = 16  # of a value with several lines: a line shown alone is masked too
SHORTEST_PART = 4  # of a value that was cut off with its text
CUT = "…"
_ARMOUR = "-----"  # the frame of a key file says nothing


def label(name: str) -> str:
    """Return what stands in the place of the secret ``name``."""
    return f"‹secret:{name}›"


class Masker:
    """Replaces values in texts; pure, immutable, and cheap to call: a text is searched, never parsed."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """Mask the values that are the keys of ``names`` by the names that they have there.

        Raises ValueError, without the value, where one has fewer than ``SHORTEST_SECRET`` characters.
        """
        labels: dict[str, str] = {}
        for value, name in names.items():
            if len(value) < SHORTEST_SECRET:
                raise ValueError(f"the value of {name} is too short to be masked")
            for form in forms(value):
                labels.setdefault(form, label(name))
        shown = set(labels.values())
        found = [(form, sign) for form, sign in labels.items() if not any(form in other for other in shown)]
        found.sort(key=lambda item: (-len(item[0]), item[0]))  # a secret that contains another one goes first
        self._forms = [(form, sign + "\n" * form.count("\n")) for form, sign in found]
        self._joined = [(_joined(form), sign) for form, sign in found]
        self._longest = max((len(form) for form, _ in found), default=0)

    def mask(self, text: str) -> str:
        """Return ``text`` with every value replaced, also one whose characters line ends stand between.

        Lines keep their numbers. Where the text ends with ``…``, what is left of a value that was cut off there goes
        as well.
        """
        if not self._forms:
            return text
        for form, sign in self._forms:
            if form in text:
                text = text.replace(form, sign)
        if "\n" in text or "\r" in text:
            text = self._mask_split(text)
        return self._without_beginning(text[:-1]) + CUT if text.endswith(CUT) else text

    def mask_head(self, text: str) -> str:
        """Like ``mask``, for a text whose end was cut off: a value's beginning there is replaced, too."""
        return self._without_beginning(self.mask(text))

    def mask_tail(self, text: str) -> str:
        """Like ``mask``, for a text whose beginning was cut off: a value's end there is replaced, too."""
        return self._without_end(self.mask(text))

    def mask_bytes(self, data: bytes) -> bytes:
        """Like ``mask``, for bytes; what is no UTF-8 stays as it is."""
        if not self._forms:
            return data
        return self.mask(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def _mask_split(self, text: str) -> str:
        joined = _joined(text)
        for form, sign in self._joined:
            if form in joined:
                split = re.compile(r"[\r\n]*".join(map(re.escape, form)))
                text = split.sub(partial(_with_its_lines, sign), text)
        return text

    def _without_beginning(self, text: str) -> str:
        """Replace the longest beginning of a value that ``text`` ends with."""
        last = text[-self._longest :]
        cut, sign = len(last), ""
        for form, its_sign in self._joined:
            place = last.find(form[:SHORTEST_PART])
            while 0 <= place < cut:
                if form.startswith(last[place:]):
                    cut, sign = place, its_sign
                place = last.find(form[:SHORTEST_PART], place + 1)
        return text[: len(text) - len(last) + cut] + sign

    def _without_end(self, text: str) -> str:
        """Replace the longest end of a value that ``text`` begins with."""
        first = text[: self._longest]
        cut, sign = 0, ""
        for form, its_sign in self._joined:
            place = first.rfind(form[-SHORTEST_PART:])
            while place >= 0 and place + SHORTEST_PART > cut:
                if form.endswith(first[: place + SHORTEST_PART]):
                    cut, sign = place + SHORTEST_PART, its_sign
                place = first.rfind(form[-SHORTEST_PART:], 0, place + SHORTEST_PART - 1)
        return sign + text[cut:]


def forms(value: str) -> set[str]:
    """Return how ``value`` looks in the eight encodings: plain, JSON-escaped, URL-quoted, hexadecimal in small and in
    capital letters, and base64 at its three alignments; each with the variants that are in use.
    """
    lines = [line.strip() for line in value.splitlines()] if "\n" in value else []
    alone = [line for line in lines if len(line) >= SHORTEST_LINE and not line.startswith(_ARMOUR)]
    return {form for text in (value, *alone) for form in _encoded(text)}


def _encoded(value: str) -> Iterator[str]:
    data = value.encode("utf-8", "surrogateescape")
    yield value
    yield repr(value)[1:-1]
    for escaped in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        yield from (escaped, escaped.replace("/", "\\/"), json.dumps(escaped)[1:-1])
    for quoted in (quote(data), quote(data, safe=""), quote(data, safe="!'()*"), quote_plus(data)):
        yield from (quoted, re.sub("%..", lambda found: found[0].lower(), quoted))
    yield from (data.hex(), data.hex().upper())
    for before in range(3):
        yield from _base64(data, before)


def _base64(data: bytes, before: int) -> Iterator[str]:
    """Yield the characters that ``data`` alone decides, where ``before`` bytes precede it in its group of three."""
    first, last = -(-8 * before // 6), 8 * (before + len(data)) // 6
    whole = bytes(before) + data
    yield base64.b64encode(whole).decode()[first:last]
    yield base64.urlsafe_b64encode(whole).decode()[first:last]


def _with_its_lines(sign: str, found: re.Match[str]) -> str:
    return sign + "\n" * found[0].count("\n")


def _joined(text: str) -> str:
    return text.replace("\n", "").replace("\r", "")
