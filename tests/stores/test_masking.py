"""Masking finds a value in every encoding, at every alignment, whatever stands around it, and nothing else."""

import base64
import html
import json
import random
import re
import shlex
import string
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stores.masking import Masker, label
from tests.support.secret_scan import encodings, found_in

PLAIN = "kx9/Tq+7=vB2 mN'\"\\z"
TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
SIGN = label("TOKEN")
KEY_FILE = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\nAASCBKcwggSjAgEAAoIBAQC7VJTU\n-----END KEY-----"

characters = st.characters(codec="utf-8", exclude_characters="‹›…", exclude_categories=["Cc"])
values = st.text(characters, min_size=8, max_size=60).filter(
    lambda value: value not in SIGN and len("".join(value.split())) >= 8
)
around = st.text(st.characters(codec="utf-8", exclude_characters="‹›…"), max_size=50)


def masker(*given: str) -> Masker:
    return Masker({value: "TOKEN" for value in given})


@pytest.mark.parametrize("value", [PLAIN, TOKEN, "pässwörter sind geheim", KEY_FILE])
@pytest.mark.parametrize("prefix", ["", "a", "ab", "abc", "abcd"])
def test_every_encoding_at_every_alignment_goes(value: str, prefix: str) -> None:
    whole = (prefix + value + "xyz").encode()
    texts = {
        "plain": prefix + value,
        "JSON": json.dumps({"key": prefix + value}),
        "JSON, not only ASCII": json.dumps({"key": prefix + value}, ensure_ascii=False),
        "JSON in JSON": json.dumps(json.dumps([prefix + value])),
        "repr": repr(prefix + value),
        "URL": urllib.parse.quote(prefix + value),
        "URL, all": urllib.parse.quote(prefix + value, safe=""),
        "form": urllib.parse.urlencode({"token": prefix + value}),
        "hex": whole.hex(),
        "HEX": whole.hex().upper(),
        "base64": base64.b64encode(whole).decode(),
        "base64, URL": base64.urlsafe_b64encode(whole).decode(),
        "base64, lines": base64.encodebytes(whole).decode(),
        "base64, indented": "".join(f"    {line}\n" for line in base64.encodebytes(whole).decode().splitlines()),
        "JSON as Go writes it": _as_go(prefix + value),
        "JSON, capital": re.sub(r"\\u....", lambda found: f"\\u{found[0][2:].upper()}", json.dumps(prefix + value)),
        "JSON in JSON in JSON": json.dumps(json.dumps(json.dumps([prefix + value]))),
        "JSON in a URL": urllib.parse.quote(json.dumps([prefix + value])),
        "repr of bytes": repr(prefix.encode() + value.encode()),
        "ASCII": ascii(prefix + value),
        "octal": "".join(f"\\{byte:03o}" if byte > 126 else chr(byte) for byte in (prefix + value).encode()),
        "URL, every character": "".join(f"%{byte:02x}" for byte in whole),
        "HTML": html.escape(prefix + value),
        "HTML, numbers": "".join(f"&#{ord(character)};" for character in prefix + value),
        "shell": shlex.quote(prefix + value),
        "hex, spaced": whole.hex(" "),
        "hex, with colons": whole.hex(":"),
        "UTF-16 of ASCII": "\x00".join(prefix + value),
        "UTF-16 of ASCII, shown": "␀".join(prefix + value),
        "coloured": f"{prefix}\x1b[31m{value[:5]}\x1b[0m{value[5:]}",
        "other line ends": (prefix + value).replace("\n", "\r\n"),
        "base64, other line ends": base64.b64encode((prefix + value).replace("\n", "\r\n").encode()).decode(),
    }
    for encoding, text in texts.items():
        masked = masker(value).mask(f"before {text} after")
        assert SIGN in masked, encoding
        assert found_in(masked.encode("utf-8", "surrogateescape"), {"TOKEN": value}) == [], encoding
        assert masked.startswith("before ")
        assert masked.endswith(" after")


def _as_go(text: str) -> str:
    said = json.dumps(text, ensure_ascii=False)
    return said.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@given(values, around, around)
def test_a_scanner_that_is_not_ours_finds_nothing_in_what_was_masked(value: str, before: str, after: str) -> None:
    masking = masker(value)
    for form in encodings(value).values():
        text = f"{before}\n{form}\n{after}"
        masked = masking.mask(text)
        assert found_in(masked.encode("utf-8", "replace"), {"TOKEN": value}) == []
        assert masking.mask(masked) == masked
        assert masking.mask_bytes(text.encode()).decode() == masked


@given(st.text(string.ascii_letters + string.digits + "+/=\n %", max_size=400), st.integers())
def test_unrelated_text_stays_as_it_is(text: str, seed: int) -> None:
    chance = random.Random(seed)
    unrelated = "".join(chance.choice("#$&*@^~|{}<>") for _ in range(3)) + "".join(chance.choices("QZ!?;", k=30))
    assert masker(unrelated, f"{unrelated}2").mask(text) == text


@pytest.mark.parametrize("width", [1, 7, 19, 38])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_value_that_is_split_over_lines_goes_and_lines_keep_their_numbers(width: int, end: str) -> None:
    for form in (TOKEN, TOKEN.encode().hex(), base64.b64encode(f"-{TOKEN}".encode()).decode()):
        lines = [form[place : place + width] for place in range(0, len(form), width)]
        text = f"one{end}{end.join(lines)}{end}last"
        masked = masker(TOKEN).mask(text)
        assert SIGN in masked
        assert masked.count("\n") == text.count("\n")
        assert found_in(masked.encode(), {"TOKEN": TOKEN}) == []


def test_a_value_stays_masked_where_blanks_stand_in_it_or_are_missing() -> None:
    masking = masker("correct horse battery")
    for text in (
        "correct\n  horse\n  battery",
        "correct  horse\tbattery",
        "correct+horse+battery",
        "correcthorsebattery",
    ):
        assert masking.mask(f"<{text}>") == f"<{SIGN}{text.count(chr(10)) * chr(10)}>"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_no_line_of_eight_characters_of_a_value_shows(end: str) -> None:
    value = "user=admin\npw=hunter2\nAAAAAAAAAAAAAAAAAAAA\nlast123=\n"
    text = value.replace("\n", end)
    assert masker(value).mask(text).strip() == SIGN
    numbered = "".join(f"{number} {line}{end}" for number, line in enumerate(text.splitlines()))
    assert re.findall("[a-zA-Z0-9=]{5,}", masker(value).mask(numbered).replace(SIGN, "")) == []


def test_values_that_overlap_leave_no_remainder() -> None:
    masking = Masker({"abcdefgh12345678": "A", "12345678xyzxyzxyz": "B"})
    assert masking.mask("-abcdefgh12345678xyzxyzxyz-") == f"-{label('B')}-"
    assert masker("abababab").mask("xababababababx") == f"x{SIGN}x"


def test_a_value_that_is_a_word_of_another_ones_label_is_masked_but_there() -> None:
    masking = Masker({"PASSWORD": "WORD", "zzzzzzzzz": "DATABASE_PASSWORD"})
    assert masking.mask("the PASSWORD is zzzzzzzzz") == f"the {label('WORD')} is {label('DATABASE_PASSWORD')}"
    assert masking.mask("‹secret:MY_PASSWORD›") == f"‹secret:MY_{label('WORD')}›", "which is no label of ours"


def test_it_says_which_values_a_text_holds() -> None:
    masking = Masker({TOKEN: "TOKEN", PLAIN: "PLAIN"})
    assert masking.names_in(f"{json.dumps(PLAIN)} {TOKEN} {TOKEN}") == ["PLAIN", "TOKEN"]
    assert masking.names_in(f"nothing of {SIGN}") == []
    assert masking.labels_in(f"{SIGN}, {label('OTHER')}") == ["TOKEN"]


def test_many_values_that_begin_alike_are_found() -> None:
    many = [f"token-{number:06}-{number * 7919 % 1_000_003:07}-{'x' * 20}" for number in range(1000)]
    masking = masker(*many)
    text = "\n".join(f"{number}: {value}" for number, value in enumerate(many))
    assert masking.mask(text) == "\n".join(f"{number}: {SIGN}" for number in range(1000))


def test_a_line_of_a_value_with_several_lines_is_masked_alone_and_its_frame_is_not() -> None:
    first, second, *_ = KEY_FILE.splitlines()
    assert masker(KEY_FILE).mask(f"{first}\n3: {second}\n") == f"{first}\n3: {SIGN}\n"


@pytest.mark.parametrize("kept", [4, 10, len(TOKEN) - 1])
def test_what_a_cut_leaves_of_a_value_goes_too(kept: int) -> None:
    masking = masker(TOKEN)
    assert masking.mask(f"the key {TOKEN[:kept]}…") == f"the key {SIGN}…"
    assert masking.mask_head(f"the key {TOKEN[:kept]}") == f"the key {SIGN}"
    assert masking.mask_tail(f"{TOKEN[-kept:]} is it") == f"{SIGN} is it"
    encoded = TOKEN.encode().hex()
    assert masking.mask_head(f"the key {encoded[: kept * 2]}") == f"the key {SIGN}"


@pytest.mark.parametrize(
    "text", ["key \\u00fc\\u00fcabc\\u00", "key %C3%BC%C3%BCabc%C3", "key \u00fc\u00fcab&#2", "key \u00fc\u00fca\nbc\n"]
)
def test_a_cut_in_the_middle_of_an_escape_or_behind_a_line_end_hides_nothing(text: str) -> None:
    assert masker("üüabcöabcdef").mask_head(text) == f"key {SIGN}{text.count(chr(10)) * chr(10)}"


def test_a_cut_in_the_middle_of_a_character_hides_nothing() -> None:
    value = "abcdüüghijklö"
    for place in range(5, 15):
        head, tail = (part.decode("utf-8", "replace") for part in (value.encode()[:place], value.encode()[place - 5 :]))
        assert masker(value).mask_head(f"key {head}") == f"key {SIGN}"
        assert masker(value).mask_tail(f"{tail} it is") == f"{SIGN} it is"


def test_what_only_looks_like_the_beginning_of_a_value_stays() -> None:
    masking = masker(TOKEN)
    for text in ("ghp", "ghp_17", "a ghp_16C7 in the middle", "nothing…", ""):
        assert masking.mask(text) == text
        assert masking.mask_head(text) == text
        assert masking.mask_tail(text) == text


def test_the_longer_of_two_values_goes_first() -> None:
    masking = Masker({TOKEN: "TOKEN", f"{TOKEN}@host": "LOGIN"})
    assert masking.mask(f"{TOKEN}@host and {TOKEN}") == f"{label('LOGIN')} and {SIGN}"


def test_a_masked_json_text_still_is_json() -> None:
    text = json.dumps({"a": PLAIN, "b": [PLAIN, base64.b64encode(PLAIN.encode()).decode()]})
    loaded = json.loads(masker(PLAIN).mask(text))
    assert loaded["a"] == SIGN
    assert SIGN in loaded["b"][1]


def test_bytes_that_are_no_text_keep_what_is_around_the_value() -> None:
    assert masker(TOKEN).mask_bytes(b"\xff\x00" + TOKEN.encode() + b"\xfe") == b"\xff\x00" + SIGN.encode() + b"\xfe"


def test_a_value_that_is_too_short_is_refused_and_not_told() -> None:
    with pytest.raises(ValueError, match=r"^the value of PIN is too short to be masked$"):
        Masker({"1234567": "PIN"})


def test_a_word_of_the_label_is_no_value() -> None:
    assert Masker({TOKEN: "TOKEN", "secret:TOKEN": "OTHER"}).mask(TOKEN) == SIGN
