"""YAML is read as its author meant it, and what could mean two things is refused with its line."""

import contextlib
import json
import time

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from client.yaml_document import MAX_BYTES, Unreadable, dotted, read_document


def value_of(text: str) -> object:
    document = read_document(text.encode())
    assert document.faults == []
    return json.loads(document.json_text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("a: -1.50", {"a": -1.5}),
        ("a: true", {"a": True}),
        ("a: False", {"a": False}),
        ("a:", {"a": None}),
        ("a: ~", {"a": None}),
        ("a: 'yes'", {"a": "yes"}),
        ('a: "1:30"', {"a": "1:30"}),
        ("a: 2026-01-31", {"a": "2026-01-31"}),
        ("a: !!str 5", {"a": "5"}),
        ("a: [x, {b: c}]", {"a": ["x", {"b": "c"}]}),
        ("a: |\n  two\n  lines\n", {"a": "two\nlines\n"}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("5: x", {"5": "x"}),
        ("\ufeffa: ü", {"a": "ü"}),
    ],
)
def test_plain_yaml_means_what_it_says(text: str, value: object) -> None:
    assert value_of(text) == value


def test_numbers_keep_their_digits() -> None:
    assert '"a":0.10' in read_document(b"a: 0.10").json_text


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("a: 1\nb: yes", 2, "write true or false, or quote it: 'yes'"),
        ("a: on", 1, "'on'"),
        ("a: 1:30", 1, "quote it: '1:30'"),
        ("a: 0123", 1, "plain decimals"),
        ("a: 0x1F", 1, "plain decimals"),
        ("a: 1_000", 1, "plain decimals"),
        ("a: .inf", 1, "plain decimals"),
        ("a: .nan", 1, "plain decimals"),
        ("a: 1\nb: 2\na: 3", 3, "stands twice; first on line 1"),
        ("a: !!python/object:os.system x", 1, "is not allowed"),
        ("a: !secret x", 1, "is not allowed"),
        ("a: &x {b: 1}\nc:\n  <<: *x", 3, "merge keys"),
        ("? [a, b]\n: 1", 1, "a key that is not a word"),
    ],
)
def test_what_could_be_misread_is_a_fault_with_its_line(text: str, line: int, part: str) -> None:
    [fault] = read_document(text.encode()).faults
    assert fault.line == line
    assert part in fault.text


@pytest.mark.parametrize(
    ("data", "line", "part"),
    [
        (b"", 1, "the file is empty"),
        (b"# only a comment\n", 1, "the file is empty"),
        (b"- a\n- b", 1, "not a mapping"),
        (b"a: 1\nb:\n\t- x", 3, "indent with spaces"),
        (b"a: 1\n  b: 2", 2, "not YAML"),
        (b"a: 'open", 1, "not YAML"),
        (b"a: 1\nb: \xff\xfe", 2, "UTF-8"),
        (b"a: \x07", 1, "control character"),
        (b"a: 1\n---\nb: 2", 2, "a second document"),
        (b"a: &x [*x]", 1, "an alias inside of what it stands for"),
        (b"a: " + b"[" * 200, 1, "nested deeper than 50 levels"),
        (b"a: " + b"[" * 100_000, 1, "nesting depth"),
        (b"a: " + b"x" * MAX_BYTES, 1, "allowed are 1,000,000"),
    ],
)
def test_what_is_no_document_is_named_with_its_line(data: bytes, line: int, part: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read_document(data)
    assert caught.value.fault.line == line
    assert part in caught.value.fault.text


def test_aliases_that_would_blow_up_are_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    began = time.monotonic()
    with pytest.raises(Unreadable, match="once its aliases are written out"):
        read_document("\n".join(lines).encode())
    assert time.monotonic() - began < 20


def test_lines_of_values_and_keys_are_found() -> None:
    document = read_document(b"a: 1\nb:\n  - c: 2\n    d: 3\n")
    assert document.line(("b", 0, "d")) == 4
    assert document.line(("b", 0, "missing")) == 3
    assert document.line(()) == 1
    assert dotted(("b", 0, "d")) == "b[0].d"


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=15,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=5))
def test_what_yaml_wrote_is_read_back(value: dict[str, object]) -> None:
    assert value_of(yaml.safe_dump(value)) == value


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200) | st.binary(max_size=200))
def test_any_bytes_give_a_document_or_a_fault_and_never_anything_else(text: str | bytes) -> None:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    with contextlib.suppress(Unreadable):
        json.loads(read_document(data).json_text)
