"""Finds secrets in files by an encoder of its own, so that what masks is not what judges."""

import binascii
import codecs
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote_from_bytes

_BLANKS = b" \t\r\n\x00"
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#x27;"}


def encodings(value: str) -> dict[str, str]:
    """Return the forms in which a value may stand anywhere, by their names."""
    data = value.encode()
    pairs = [f"{byte:02x}" for byte in data]
    escaped = "".join(map(_json, value))
    forms = {
        "plain": value,
        "JSON-escaped": escaped,
        "JSON-escaped as by Go": "".join(f"\\u{ord(one):04x}" if one in "<>&" else one for one in escaped),
        "JSON-escaped, only ASCII": "".join(one if one.isascii() else _units(one) for one in escaped),
        "URL-quoted": quote_from_bytes(data, safe=""),
        "URL-quoted, every byte": "".join(f"%{pair}" for pair in pairs),
        "HTML": "".join(_ENTITIES.get(one, one) for one in value),
        "shell-quoted": "'\\''".join(value.split("'")),
        "hex": "".join(pairs),
        "HEX": codecs.encode(data, "hex").decode().upper(),
        "hex, spaced": " ".join(pairs),
        "hex, with colons": ":".join(pairs),
    }
    for alignment in range(3):
        forms[f"base64 at {alignment}"] = _base64_inside(data, alignment)
    return forms


def _json(character: str) -> str:
    short = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return short.get(character) or (f"\\u{ord(character):04x}" if ord(character) < 32 else character)


def _units(character: str) -> str:
    """Return a character as JSON's escapes in capitals, two where it is beyond 16 bits."""
    units = character.encode("utf-16-be").hex().upper()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def _base64_inside(data: bytes, alignment: int) -> str:
    """Return what two different neighbourhoods have in common: the characters that the value alone decides."""
    texts = [
        binascii.b2a_base64(before[:alignment] + data + after, newline=False).decode()
        for before, after in ((b"\x00\x00", b"\x00\x00\x00"), (b"\xff\xff", b"\xff\xff\xff"))
    ]
    same = [left if left == right else "\n" for left, right in zip(*texts, strict=True)]
    return max("".join(same).split("\n"), key=len)


def found_in(data: bytes, secrets: Mapping[str, str]) -> list[str]:
    """Return which secrets stand in ``data`` and how; blanks, line ends and NUL bytes (UTF-16) do not count."""
    joined = data.translate(None, _BLANKS)
    return [
        f"{name} ({encoding})"
        for name, value in secrets.items()
        for encoding, form in encodings(value).items()
        if form.encode() in data or form.encode().translate(None, _BLANKS) in joined
    ]


def scan(places: Iterable[Path], secrets: Mapping[str, str]) -> list[str]:
    """Return every find in the files below ``places``; of compressed ones also in what they hold."""
    finds = []
    for place in places:
        for path in sorted([place] if place.is_file() else (path for path in place.rglob("*") if path.is_file())):
            data = path.read_bytes()
            if path.suffix == ".gz":
                data += subprocess.run(["gzip", "-dc", path], capture_output=True, check=True).stdout
            finds += [f"{path}: {find}" for find in found_in(data, secrets)]
    return finds
