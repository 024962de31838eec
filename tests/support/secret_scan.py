"""Finds secrets in files by an encoder of its own, so that what masks is not what judges."""

import binascii
import codecs
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote_from_bytes


def encodings(value: str) -> dict[str, str]:
    """Return the eight forms in which a value may stand anywhere, by their names."""
    data = value.encode()
    forms = {
        "plain": value,
        "JSON-escaped": "".join(map(_json, value)),
        "URL-quoted": quote_from_bytes(data, safe=""),
        "hex": codecs.encode(data, "hex").decode(),
        "HEX": codecs.encode(data, "hex").decode().upper(),
    }
    for alignment in range(3):
        forms[f"base64 at {alignment}"] = _base64_inside(data, alignment)
    return forms


def _json(character: str) -> str:
    short = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return short.get(character) or (f"\\u{ord(character):04x}" if ord(character) < 32 else character)


def _base64_inside(data: bytes, alignment: int) -> str:
    """Return what two different neighbourhoods have in common: the characters that the value alone decides."""
    texts = [
        binascii.b2a_base64(before[:alignment] + data + after, newline=False).decode()
        for before, after in ((b"\x00\x00", b"\x00\x00\x00"), (b"\xff\xff", b"\xff\xff\xff"))
    ]
    same = [left if left == right else "\n" for left, right in zip(*texts, strict=True)]
    return max("".join(same).split("\n"), key=len)


def found_in(data: bytes, secrets: Mapping[str, str]) -> list[str]:
    """Return which secrets stand in ``data`` and how, line ends left out of account."""
    joined = data.replace(b"\r", b"").replace(b"\n", b"")
    return [
        f"{name} ({encoding})"
        for name, value in secrets.items()
        for encoding, form in encodings(value).items()
        if form.encode() in data or form.replace("\n", "").encode() in joined
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
