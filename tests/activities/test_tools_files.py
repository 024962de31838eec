"""The file tools, and what models are told about tools."""

import json
from pathlib import Path
from typing import Any

import pytest

from activities.tools.registry import TOOLS, argument_schema, check_action, tool_guide
from schemas.actions import ObservationStatus
from schemas.effects import EffectClass
from schemas.errors import Final, UnknownTool
from schemas.sizing import TOOL_OVERHEAD_TOKENS
from schemas.texts import estimate_tokens
from tests.activities.workspace_bench import WorkspaceBench

OK, FAILED = ObservationStatus.SUCCEEDED, ObservationStatus.FAILED


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> WorkspaceBench:
    return WorkspaceBench(tmp_path_factory.mktemp("files"), files={"src/a.py": "x = 1\ny = 2\n"})


def test_a_long_file_is_read_page_by_page_without_a_gap(bench: WorkspaceBench) -> None:
    text = "".join(f"line {number} with some words in it\n" for number in range(1, 501))
    (bench.root / "long.txt").write_text(text)
    read, line = "", 1
    for _ in range(10):
        seen = bench.act("read_file", path="long.txt", start_line=line)
        assert seen.output is None  # a page is never cut once more
        read += bench.shown(seen)
        if "go on" not in seen.summary:
            break
        line = int(seen.summary.rpartition(" ")[2])
    assert read == text
    assert seen.summary.endswith("to 500 of 500")


@pytest.mark.parametrize(
    ("content", "arguments", "status", "said"),
    [
        (b"", {}, OK, "is empty"),
        (b"a\nb\n", {"start_line": 3}, FAILED, "has only 2 lines"),
        (b"a\x00b", {}, FAILED, "no text"),
        (b"\xff\xfe", {}, OK, "lines 1 to 1 of 1"),
        (None, {}, FAILED, "file.txt does not exist"),
    ],
)
def test_reading_says_what_it_found(
    bench: WorkspaceBench, content: bytes | None, arguments: dict[str, int], status: ObservationStatus, said: str
) -> None:
    (bench.root / "file.txt").unlink(missing_ok=True)
    if content is not None:
        (bench.root / "file.txt").write_bytes(content)
    seen = bench.act("read_file", path="file.txt", **arguments)
    assert (seen.status, said in seen.summary) == (status, True), seen.summary


def test_writing_creates_and_replaces(bench: WorkspaceBench) -> None:
    assert bench.act("write_file", path="new/b.txt", content="één\r\n").summary == "created new/b.txt, 7 bytes"
    assert (bench.root / "new" / "b.txt").read_bytes() == "één\r\n".encode()
    assert bench.act("write_file", path="new/b.txt", content="").summary == "replaced new/b.txt, 0 bytes"
    assert bench.act("write_file", path="new", content="x").summary == "new is a folder"
    assert list((bench.root.parent / "incoming").iterdir()) == []


def test_an_edit_replaces_the_one_passage(bench: WorkspaceBench) -> None:
    (bench.root / "e.txt").write_bytes(b"a\r\nb\tc\r\nd\n")
    seen = bench.act("edit_file", path="e.txt", old="b\tc\r\n", new="B\n")
    assert (seen.status, seen.summary) == (OK, "replaced one passage of e.txt at line 2")
    assert (bench.root / "e.txt").read_bytes() == b"a\r\nB\nd\n"


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("three", "does not occur in e.txt: read the file and copy the passage exactly"),
        ("o", "occurs 2 times in e.txt (lines 1, 2): take in more of the text around it"),
    ],
)
def test_an_edit_that_is_not_exact_changes_nothing_and_says_how_to_mend_it(
    bench: WorkspaceBench, old: str, said: str
) -> None:
    (bench.root / "e.txt").write_text("one\ntwo\n")
    seen = bench.act("edit_file", path="e.txt", old=old, new="x")
    assert seen.status is FAILED
    assert said in seen.summary
    assert (bench.root / "e.txt").read_text() == "one\ntwo\n"


def test_listing_shows_files_with_sizes_without_noise(bench: WorkspaceBench) -> None:
    folder = bench.root / "listed"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / "__pycache__" / "a.pyc").write_text("noise")
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("/etc")
    (folder / "z.txt").write_text("12345")
    seen = bench.act("list_files", path="listed")
    assert seen.summary == "3 files in listed"
    assert bench.shown(seen).splitlines() == [
        "listed/empty  (empty folder)",
        "listed/link  (symbolic link)",
        "listed/z.txt  (5 bytes)",
    ]


def test_searching_finds_lines_with_path_and_number(bench: WorkspaceBench) -> None:
    folder = bench.root / "searched"
    folder.mkdir()
    (folder / "a.txt").write_text("nothing\nThe Word\nword (x)\n")
    (folder / "b.bin").write_bytes(b"word\x00")
    (folder / "out").symlink_to(bench.home)
    seen = bench.act("search_files", path="searched", text="word (", ignore_case=False)
    assert bench.shown(seen) == "searched/a.txt:3: word (x)\n"
    assert bench.act("search_files", path="searched", text="WORD", ignore_case=True).summary == "2 lines with the text"
    of_file = bench.act("search_files", path="searched/a.txt", text="word (")
    assert bench.shown(of_file) == "searched/a.txt:3: word (x)\n"
    assert "searched/none" in bench.act("search_files", path="searched/none", text="word").summary


@pytest.mark.parametrize("tool", ["read_file", "write_file", "edit_file", "list_files", "search_files"])
@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "way/secret"])
def test_no_tool_leaves_the_workspace(bench: WorkspaceBench, tool: str, path: str) -> None:
    (bench.root.parent / "secret").write_text("secret")
    way = bench.root / "way"
    way.unlink(missing_ok=True)
    way.symlink_to(bench.root.parent)
    more: dict[str, Any] = {"write_file": {"content": "x"}, "edit_file": {"old": "s", "new": "x"}}
    more["search_files"] = {"text": "s"}
    seen = bench.act(tool, path=path, **more.get(tool, {}))
    assert seen.status is FAILED
    assert seen.excerpt is None
    assert any(word in seen.summary for word in ("..", "outside", "symbolic link"))
    assert (bench.root.parent / "secret").read_text() == "secret"


def test_the_guide_holds_every_tool_with_its_arguments() -> None:
    guide = tool_guide(tuple(TOOLS))
    for tool in TOOLS.values():
        assert f"{tool.name}: {tool.description}" in guide
        for name, field in tool.arguments.model_fields.items():
            assert field.description, f"{tool.name}.{name}"
            assert f"- {name} (" in guide
            assert field.description in guide


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_an_argument_schema_fits_into_what_a_workflow_reserves_for_it(tool: object) -> None:
    schema = argument_schema(tool)  # type: ignore[arg-type]  # parametrize knows no types
    assert estimate_tokens(json.dumps(schema)) <= TOOL_OVERHEAD_TOKENS


def test_a_good_action_is_described_in_a_line() -> None:
    checked = check_action("run", '{"command": "echo a\\n\\techo b"}', ("run",))
    assert (checked.preview, checked.invalid) == ("echo a echo b", None)
    assert (checked.effect_class, checked.irreversible) == (EffectClass.NONE, False)


@pytest.mark.parametrize("tool", ["rm_rf", "write_file", ""])
def test_a_tool_that_is_unknown_or_not_the_tasks_counts_as_irreversible(tool: str) -> None:
    checked = check_action(tool, "{}", ("run", "read_file"))
    assert (checked.effect_class, checked.irreversible) == (EffectClass.NONE, True)
    assert checked.invalid is not None
    assert "the tools are run, read_file" in checked.invalid


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{", "Invalid JSON"),
        ("[]", "Input should be an object"),
        ('{"path": "a", "old": "a", "new": "a"}', "nothing would change"),
        ('{"path": "a\\u0000", "old": "a", "new": "b"}', "path: Value error, must not contain NUL"),
        ('{"path": "", "old": "", "new": "b"}', "path: String should have at least 1 character"),
        ('{"path": 1}', "It takes path, old, new"),
    ],
)
def test_wrong_arguments_are_answered_with_what_to_change(arguments: str, said: str) -> None:
    checked = check_action("edit_file", arguments, ("edit_file",))
    assert checked.invalid is not None
    assert said in checked.invalid
    assert len(checked.invalid) <= 500
    assert len(checked.preview) <= 240


def test_a_module_of_a_tool_is_named_like_the_tool() -> None:
    folder = Path(__file__).parents[2] / "activities" / "tools"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "tool", "registry"}
    assert modules == set(TOOLS)


def test_a_guide_to_a_tool_that_is_not_there_is_refused_for_good() -> None:
    with pytest.raises(UnknownTool, match="there is no tool 'fly'; the tools are run, read_file"):
        tool_guide(("run", "fly"))
    assert issubclass(UnknownTool, Final)


def test_noise_is_neither_listed_nor_searched(bench: WorkspaceBench) -> None:
    for path in ("noisy/node_modules/x.js", "noisy/.git/HEAD", "noisy/__pycache__/a.pyc", "noisy/b.pyc", "noisy/c.txt"):
        (bench.root / path).parent.mkdir(parents=True, exist_ok=True)
        (bench.root / path).write_text("needle\n")
    assert bench.shown(bench.act("list_files", path="noisy")) == "noisy/c.txt  (7 bytes)\n"
    assert bench.shown(bench.act("search_files", path="noisy", text="needle")) == "noisy/c.txt:1: needle\n"
    assert "x.js" in bench.shown(bench.act("list_files", path="noisy/node_modules"))
