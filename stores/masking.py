"""Masking: known secret values replaced in texts, in whatever common encoding they stand there."""

import base64
import re
from collections.abc import Iterator, Mapping

from stores.views import View, squeeze, views

SHORTEST_SECRET = 8  # characters that are no blanks; a shorter value, or line of one, would blank ordinary words
SHORTEST_PART = 4  # of a value that was cut off with its text
CUT = "…"
_ARMOUR = "-----"  # the frame of a key file says nothing
_GRAM = 6  # characters that are looked up at every third place of a text: see ``_candidates``
_STRIDE = SHORTEST_SECRET - _GRAM + 1
_LONGEST_ESCAPE = 6  # characters for one
_HALF_CHARACTER = "\ufffd"  # as bytes are shown that are cut off in its middle
_LABEL = re.compile(r"‹secret:(\w+)›")
_HALF_ESCAPE = re.compile(
    r"(?:\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\)?(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?|[0-3][0-7]?)?"
    r"|(?:%[c-fC-F][0-9a-fA-F](?:%[89abAB][0-9a-fA-F]){0,2})?(?:%[0-9a-fA-F]?)?|&#?\w{0,31}|\ufffd+)\Z"
)
Span = tuple[int, int, str]


def label(name: str) -> str:
    """Return what stands in the place of the secret ``name``."""
    return f"‹secret:{name}›"


class Masker:
    """Replaces values in texts. One thread may add values while others mask."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """Mask the values that are the keys of ``names`` by the names that they have there: see ``add``."""
        self._labels: dict[str, str] = {}
        self._signs: set[str] = set()
        self._grams: dict[str, list[str]] = {}
        self._heads: dict[str, list[str]] = {}
        self._tails: dict[str, list[str]] = {}
        self._longest = 0
        self._blanks = False
        for value, name in names.items():
            self.add(value, name)

    def add(self, value: str, name: str) -> None:
        """Mask ``value`` from now on as the secret ``name``.

        Raises ValueError, without the value, where it has fewer than ``SHORTEST_SECRET`` characters.
        """
        if len(squeeze(value)) < SHORTEST_SECRET:
            raise ValueError(f"the value of {name} is too short to be masked")
        self._signs.add(label(name))
        self._blanks = self._blanks or squeeze(value) != value
        for form in sorted(forms(value)):
            if form not in self._labels:
                self._labels[form] = label(name)
                self._longest = max(self._longest, len(form))
                self._index(form)

    def mask(self, text: str) -> str:
        """Return ``text`` with every value replaced, also one with blanks or line ends between its characters.

        Lines keep their numbers. Values that overlap go together, under the name of the longest. Where the text ends
        with ``…``, what is left of a value that was cut off there goes as well.
        """
        if not self._labels:
            return text
        text = _replaced(text, self._found(text))
        return self._without_beginning(text[:-1]) + CUT if text.endswith(CUT) else text

    def mask_head(self, text: str) -> str:
        """Like ``mask``, for a text whose end was cut off: a value's beginning there is replaced, too."""
        return self._without_beginning(self.mask(text))

    def mask_tail(self, text: str) -> str:
        """Like ``mask``, for a text whose beginning was cut off: a value's end there is replaced, too."""
        return self._without_end(self.mask(text))

    def mask_bytes(self, data: bytes) -> bytes:
        """Like ``mask``, for bytes; what is no UTF-8 stays as it is."""
        if not self._labels:
            return data
        return self.mask(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def names_in(self, text: str) -> list[str]:
        """Return the names of the values that stand in ``text``, in order."""
        return sorted({sign.removeprefix("‹secret:").removesuffix("›") for _, _, sign in self._found(text)})

    def labels_in(self, text: str) -> list[str]:
        """Return the names of the secrets whose masks stand in ``text``, in order."""
        return sorted({mask[1] for mask in _LABEL.finditer(text) if mask[0] in self._signs})

    def _index(self, form: str) -> None:
        """Make ``form`` findable, by that place in it which the fewest others share: tokens begin alike."""
        places = {0, (len(form) - SHORTEST_SECRET) // 2, len(form) - SHORTEST_SECRET}
        grams = [[form[place + more : place + more + _GRAM] for more in range(_STRIDE)] for place in sorted(places)]
        for gram in min(grams, key=lambda some: sum(len(self._grams.get(gram, ())) for gram in some)):
            self._grams.setdefault(gram, []).append(form)
        self._heads.setdefault(form[:SHORTEST_PART], []).append(form)
        self._tails.setdefault(form[-SHORTEST_PART:], []).append(form)

    def _candidates(self, text: str) -> set[str]:
        """Return the forms that may stand in ``text``, without searching it once for each.

        Of every form the index holds the grams at ``_STRIDE`` places in a row, one of which is looked up wherever the
        form stands.
        """
        grams = self._grams
        places = range(0, len(text) - _GRAM + 1, _STRIDE)
        hits = {gram for place in places if (gram := text[place : place + _GRAM]) in grams}
        return {form for gram in hits for form in grams[gram]}

    def _found(self, text: str) -> list[Span]:
        """Return where values stand in ``text``, but for those that are part of a mask."""
        found: set[Span] = set()
        for view in views(text, self._blanks):
            for form in self._candidates(view.text):
                place = view.text.find(form)
                while place >= 0:
                    found.add((*view.span(place, place + len(form)), self._labels[form]))
                    place = view.text.find(form, place + 1)
        if not found:
            return []
        masks = [mask.span() for mask in _LABEL.finditer(text) if mask[0] in self._signs]
        return [span for span in found if not any(first <= span[0] and span[1] <= last for first, last in masks)]

    def _without_beginning(self, text: str) -> str:
        """Replace the longest beginning of a value that ``text`` ends with."""
        last = text[-_LONGEST_ESCAPE * self._longest :] if self._labels else ""
        whole = len(last) - len((_HALF_ESCAPE.search(last) or [""])[0])
        spans = [
            (begun[0], len(last), begun[1])
            for part in {last, last[:whole]}
            for view in views(part, self._blanks)
            if (begun := self._begun(view))
        ]
        return text[: len(text) - len(last)] + _replaced(last, spans)

    def _begun(self, view: View) -> tuple[int, str] | None:
        """Return where the longest beginning of a value that the view ends with begins in the text, and its mask."""
        text = view.text
        for place in range(max(len(text) - self._longest, 0), len(text) - SHORTEST_PART + 1):
            for form in self._heads.get(text[place : place + SHORTEST_PART], ()):
                if form.startswith(text[place:]):
                    return view.span(place, len(text))[0], self._labels[form]
        return None

    def _without_end(self, text: str) -> str:
        """Replace the longest end of a value that ``text`` begins with."""
        whole = text.lstrip(_HALF_CHARACTER)
        first = whole[: _LONGEST_ESCAPE * self._longest]
        spans = [(0, ended[0], ended[1]) for view in views(first, self._blanks) if (ended := self._ended(view))]
        return (_replaced(first, spans) if spans else text[: len(text) - len(whole)] + first) + whole[len(first) :]

    def _ended(self, view: View) -> tuple[int, str] | None:
        """Return where the longest end of a value that the view begins with ends in the text, and its mask."""
        text = view.text
        for place in range(min(self._longest, len(text)), SHORTEST_PART - 1, -1):
            for form in self._tails.get(text[place - SHORTEST_PART : place], ()):
                if form.endswith(text[:place]):
                    return view.span(0, place)[1], self._labels[form]
        return None


def forms(value: str) -> set[str]:
    """Return how ``value`` looks plainly, in hexadecimal, and in base64 at its three alignments, all without blanks.

    Of a value with several lines also with the other line ends, and every line that is long enough to be masked alone.
    Escapes are none of its business: they are undone in the text that is searched.
    """
    texts = [value]
    if "\n" in value:
        unix = value.replace("\r\n", "\n")
        lines = [line.strip() for line in unix.splitlines()]
        alone = [line for line in lines if len(squeeze(line)) >= SHORTEST_SECRET and not line.startswith(_ARMOUR)]
        texts = [unix, unix.replace("\n", "\r\n"), *alone]
    return {form for text in texts for form in _encoded(text)}


def _encoded(value: str) -> Iterator[str]:
    data = value.encode("utf-8", "surrogateescape")
    yield squeeze(value)
    yield from (data.hex(), data.hex().upper())
    for before in range(3):
        yield from _base64(data, before)


def _base64(data: bytes, before: int) -> Iterator[str]:
    """Yield the characters that ``data`` alone decides, where ``before`` bytes precede it in its group of three."""
    first, last = -(-8 * before // 6), 8 * (before + len(data)) // 6
    whole = bytes(before) + data
    yield base64.b64encode(whole).decode()[first:last]
    yield base64.urlsafe_b64encode(whole).decode()[first:last]


def _replaced(text: str, spans: list[Span]) -> str:
    """Return ``text`` with every union of overlapping spans replaced, line ends kept."""
    if not spans:
        return text
    parts, done = [], 0
    for first, last, sign in _united(spans):
        parts += [text[done:first], sign, "\n" * text.count("\n", first, last)]
        done = last
    return "".join([*parts, text[done:]])


def _united(spans: list[Span]) -> Iterator[Span]:
    ordered = sorted(spans, key=lambda span: (span[0], -span[1], span[2]))
    begin, end, sign = ordered[0]
    size = end - begin
    for first, last, its_sign in ordered[1:]:
        if first >= end:
            yield begin, end, sign
            begin, end, sign, size = first, last, its_sign, last - first
            continue
        end = max(end, last)
        if last - first > size:
            sign, size = its_sign, last - first
    yield begin, end, sign
