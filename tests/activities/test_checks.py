"""Checks measure; a check that cannot run is not met, and says why."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from temporalio.testing import ActivityEnvironment

from activities.checks import resolve_pointer, same_json
from activities.workspaces.globs import compile_glob, matches_any
from activities.workspaces.matching import MatchFailed, found_in
from schemas.checks import Check, CommandCheck, Requirement
from schemas.workspace import ChecksReply, RunChecksRequest, WorkspaceKind
from tests.activities.workspace_bench import WorkspaceBench
from tests.support.aio import run
from tests.support.processes import eventually, processes_with, stubborn_tree

FILES = {
    "report.json": json.dumps({"score": 0.5, "ok": True, "a/b": {"c~d": [10, {"e": None}]}}),
    "a.txt": "one\ntwo\n",
}


@pytest.fixture(scope="module", params=list(WorkspaceKind))
def either(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> WorkspaceBench:
    return WorkspaceBench(tmp_path_factory.mktemp("either"), request.param, FILES)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> WorkspaceBench:
    return WorkspaceBench(tmp_path_factory.mktemp("checks"), WorkspaceKind.LOCAL, FILES)


@pytest.fixture
def fresh(tmp_path: Path) -> WorkspaceBench:
    return WorkspaceBench(tmp_path, WorkspaceKind.LOCAL, {"src/a.py": "x", "src/deep/b.py": "y", "README.md": "z"})


def check(**fields: Any) -> Check:
    """Return a check as a scenario would write it."""
    parsed: Check = TypeAdapter(Check).validate_json(json.dumps(fields))
    return parsed


@pytest.mark.parametrize(
    ("fields", "met", "detail"),
    [
        ({}, True, "a.txt is as it must be"),
        ({"contains": "two"}, True, "a.txt is as it must be"),
        ({"contains": "three"}, False, "a.txt does not contain 'three'"),
        ({"lacks": "two"}, False, "a.txt contains 'two'"),
        ({"matches": "^two$"}, True, "a.txt is as it must be"),
        ({"matches": "^t$"}, False, "a.txt has no match for '^t$'"),
        ({"matches": "("}, False, "'(' is no valid expression"),
        ({"equals": "\none\ntwo"}, True, "a.txt is as it must be"),
        ({"equals": "one"}, False, "is not the expected text, it begins with 'one two'"),
        ({"exists": False}, False, "a.txt exists"),
        ({"path": "none.txt"}, False, "none.txt does not exist"),
        ({"path": "none.txt", "exists": False}, True, "none.txt does not exist"),
        ({"path": "no/ne.txt", "exists": False}, True, "no/ne.txt does not exist"),
        ({"path": "../workspace.json"}, False, "contains '..'"),
        ({"path": "/etc/passwd"}, False, "outside the workspace"),
        ({"path": "way"}, False, "way is a symbolic link"),
        ({"path": "way", "exists": False}, False, "way exists"),
    ],
)
def test_file_checks(bench: WorkspaceBench, fields: dict[str, Any], met: bool, detail: str) -> None:
    if not (bench.root / "way").is_symlink():
        (bench.root / "way").symlink_to("/etc/passwd")
    result = bench.check(check(kind="file", **{"path": "a.txt", **fields}))
    assert (result.id, result.met) == ("holds", met), result.detail
    assert detail in result.detail


@pytest.mark.parametrize(
    ("fields", "met", "detail"),
    [
        ({"pointer": "/score", "minimum": 0.5}, True, "report.json at /score is 0.5"),
        ({"pointer": "/score", "minimum": 0.6}, False, "report.json at /score is 0.5, expected at least 0.6"),
        ({"pointer": "/score", "maximum": 0.4}, False, "expected at most 0.4"),
        ({"pointer": "/ok", "equals": True}, True, "report.json at /ok is true"),
        ({"pointer": "/ok", "equals": 1}, False, "is true, expected 1"),
        ({"pointer": "/ok", "minimum": 0}, False, "is true, expected a number"),
        ({"pointer": "/a~1b/c~0d/0", "equals": 10.0}, True, "is 10"),
        ({"pointer": "/a~1b/c~0d/1/e"}, True, "is null"),
        ({"pointer": "/a~1b/c~0d/2"}, False, "has nothing at '/a~1b/c~0d/2'"),
        ({"pointer": "/score/x"}, False, "has nothing at '/score/x'"),
        ({"path": "a.txt"}, False, "a.txt is no JSON"),
        ({"path": "none.json"}, False, "none.json does not exist"),
        ({"path": "deep.json", "equals": []}, False, "deep.json is no JSON"),
    ],
)
def test_json_checks(bench: WorkspaceBench, fields: dict[str, Any], met: bool, detail: str) -> None:
    (bench.root / "deep.json").write_text("[" * 100_000)
    result = bench.check(check(kind="json", **{"path": "report.json", **fields}))
    assert (result.met, detail in result.detail) == (met, True), result.detail


@pytest.mark.parametrize("bound", [{"minimum": 0}, {"maximum": 0}])
@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e999", "-1e999"])
def test_no_bound_is_met_by_what_is_no_number(bench: WorkspaceBench, number: str, bound: dict[str, float]) -> None:
    (bench.root / "odd.json").write_text(f'{{"n": {number}}}')
    result = bench.check(check(kind="json", path="odd.json", pointer="/n", **bound))
    assert not result.met, result.detail
    assert "number" in result.detail


def test_whole_numbers_of_any_length_are_compared(bench: WorkspaceBench) -> None:
    (bench.root / "long.json").write_text("1" + "0" * 400)
    assert bench.check(check(kind="json", path="long.json", minimum=1)).met


@pytest.mark.parametrize(
    ("fields", "met", "detail"),
    [
        ({"run": "echo hello"}, True, "exit code 0, as expected"),
        ({"run": "echo broken >&2; exit 1"}, False, "exit code 1, expected 0: …broken"),
        ({"run": "exit 3", "exit_code": 3}, True, "exit code 3, as expected"),
        ({"run": "cat a.txt", "prints": "two"}, True, "exit code 0, as expected"),
        ({"run": "cat a.txt", "prints": "three"}, False, "does not print 'three': …two"),
        ({"run": "cat a.txt", "lacks": "two"}, False, "prints 'two': …two"),
        ({"run": "sleep 60", "timeout_seconds": 1}, False, "killed after 1 s"),
        ({"run": "no-such-program"}, False, "exit code 127, expected 0"),
    ],
)
def test_command_checks(either: WorkspaceBench, fields: dict[str, Any], met: bool, detail: str) -> None:
    result = either.check(check(kind="command", **fields))
    assert (result.met, detail in result.detail) == (met, True), result.detail


def test_what_was_not_kept_of_an_output_may_hold_what_it_must_lack(bench: WorkspaceBench) -> None:
    zeros = "head -c {} /dev/zero | tr '\\0' x"
    run = f"{zeros.format(17_000_000)}; echo FAILED; {zeros.format(1_000_000)}"
    for fields, said in (({"lacks": "FAILED"}, "was not seen to print"), ({"prints": "FAILED"}, "does not print")):
        result = bench.check(check(kind="command", run=run, **fields))
        assert not result.met
        assert f"{said} 'FAILED', but 1,222,791 bytes of its output were not kept" in result.detail
    fits = check(kind="command", run=zeros.format(16 * 1024 * 1024), lacks="FAILED")
    assert bench.check(fits).met


def test_a_commands_output_is_kept_in_short(either: WorkspaceBench) -> None:
    result = either.check(check(kind="command", run="echo first; seq 10000; echo last"))
    output = either.text(result.output)
    assert len(output) <= 2000
    assert output.startswith("first\n")
    assert output.endswith("last\n")


def test_a_command_check_leaves_no_process(either: WorkspaceBench) -> None:
    token = f"token-check-{os.getpid()}-{either.workspace.kind}"
    result = either.check(check(kind="command", run=stubborn_tree(token, "ready"), timeout_seconds=1))
    assert not result.met
    assert processes_with(token) == []


def test_a_compiled_file_that_was_left_behind_does_not_answer_for_the_source(either: WorkspaceBench) -> None:
    """Python believes a .pyc whose source has the size and second that it was compiled from."""
    module = either.root / "answer.py"
    module.write_text("VALUE = 1\n")
    os.utime(module, (10**9, 10**9))
    either.act("run", command="unset PYTHONDONTWRITEBYTECODE; python3 -c 'import answer'")
    assert (either.root / "__pycache__").is_dir()
    module.write_text("VALUE = 2\n")
    os.utime(module, (10**9, 10**9))
    result = either.check(check(kind="command", run="python3 -c 'import answer; print(answer.VALUE)'", prints="2"))
    assert result.met, result.detail


@pytest.mark.parametrize(
    ("fields", "met", "detail"),
    [
        ({"only_changed": ["src/**"]}, True, "changed: src/a.py, src/new.py"),
        ({"only_changed": ["src/*"], "unchanged": ["README.md", "**/b.py"]}, True, "changed: src/a.py, src/new.py"),
        ({"only_changed": ["src/a.py"]}, False, "changed beside src/a.py: src/new.py"),
        ({"unchanged": ["**/*.py"]}, False, "changed, and must not be: src/a.py, src/new.py"),
        ({"created": ["src/n*.py"]}, True, "changed: src/a.py, src/new.py"),
        ({"created": ["src/a.py"]}, False, "nothing was created that matches src/a.py"),
    ],
)
def test_directory_checks(fresh: WorkspaceBench, fields: dict[str, Any], met: bool, detail: str) -> None:
    (fresh.root / "src" / "a.py").write_text("changed")
    (fresh.root / "src" / "new.py").write_text("")
    (fresh.root / "src" / "__pycache__").mkdir()
    result = fresh.check(check(kind="directory", **fields))
    assert (result.met, result.detail) == (met, detail)


@pytest.mark.parametrize("path", ["src/unittest.pyc", "src/__pycache__/a.pyc", ".git/hooks", "node_modules/x.js"])
def test_a_directory_check_sees_what_is_planted_among_caches(fresh: WorkspaceBench, path: str) -> None:
    (fresh.root / path).parent.mkdir(exist_ok=True)
    (fresh.root / path).write_text("planted")
    for fields in ({"only_changed": ["src/*.py"]}, {"unchanged": ["**"]}):
        result = fresh.check(check(kind="directory", **fields))
        assert (result.met, path in result.detail) == (False, True), result.detail


def test_a_deleted_file_is_a_change_and_an_emptied_folder_is_none(fresh: WorkspaceBench) -> None:
    (fresh.root / "src" / "deep" / "b.py").unlink()
    result = fresh.check(check(kind="directory", only_changed=[]))
    assert (result.met, result.detail) == (False, "changed beside : src/deep/b.py")
    assert fresh.check(check(kind="directory", only_changed=["**/b.py"])).met


def test_a_directory_check_of_more_than_can_be_read_is_not_met(fresh: WorkspaceBench) -> None:
    with (fresh.root / "huge").open("wb") as file:
        file.truncate(10**12)
    result = fresh.check(check(kind="directory", unchanged=["README.md"]))
    assert (result.met, "beyond the bounds" in result.detail) == (False, True)


def test_an_evaluators_checks_are_numbered_and_all_run(bench: WorkspaceBench) -> None:
    results = bench.evaluate(check(kind="file", path="none"), check(kind="file", path="a.txt"))
    assert [(result.id, result.met) for result in results] == [("evaluator.1", False), ("evaluator.2", True)]


def test_cancelled_checks_end_with_their_processes_and_without_results(bench: WorkspaceBench) -> None:
    token = f"token-check-cancelled-{os.getpid()}"
    slow = CommandCheck(kind="command", run=stubborn_tree(token, "ready-cancelled"))
    request = RunChecksRequest(
        workspace=bench.workspace, requirements=(Requirement(id="slow", text="It is slow.", check=slow),)
    )

    async def cancelled() -> ChecksReply:
        environment = ActivityEnvironment()
        checks = asyncio.ensure_future(environment.run(bench.activities.run_checks, request))
        await asyncio.to_thread(eventually, (bench.root / "ready-cancelled").exists)
        environment.cancel()
        return await checks

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert processes_with(token) == []


def test_an_expression_that_never_ends_is_given_up() -> None:
    with pytest.raises(MatchFailed, match=r"takes longer than 0\.5 s"):
        run(found_in(r"(a+)+$", "a" * 60 + "b", seconds=0.5))


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py", ".py"], ["src/a.py", "a.pyc"]),
        ("src/*", ["src/a", "src/a.b"], ["src", "src/a/b", "xsrc/a"]),
        ("src/**", ["src/a", "src/a/b"], ["src", "srcx/a"]),
        ("src/", ["src/a", "src/a/b"], ["src", "srcx/a"]),
        ("**/a.py", ["a.py", "x/a.py", "x/y/a.py"], ["xa.py", "a.py/x"]),
        ("**", ["a", "a/b"], []),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb"]),
        ("[ab]?.t[!x]t", ["a1.txt".replace("x", "e"), "b2.tat"], ["c1.tat", "a1.txt", "a.tat"]),
        ("a+b(c).txt", ["a+b(c).txt"], ["aab(c).txt"]),
        ("./a", ["a"], ["./a"]),
        ("[", ["["], ["x"]),
        ("a[z-b]", ["a[z-b]"], ["ac", "az"]),
        ("a[b--z]", ["a[b--z]"], ["ab"]),
    ],
)
def test_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [path for path in yes if not matches_any(path, (pattern,))] == []
    assert [path for path in no if matches_any(path, (pattern,))] == []


@given(st.text(alphabet="ab*?[]!^/.\\-", max_size=30), st.text(alphabet="ab/.]\\", max_size=30))
def test_every_pattern_is_valid_and_ends(pattern: str, path: str) -> None:
    compile_glob(pattern)
    matches_any(path, (pattern, "*a*a*a*a*a*a*b"))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda s: st.lists(s) | st.dictionaries(st.text(), s),
        max_leaves=10,
    )
)
def test_every_value_of_a_document_has_a_pointer(document: Any) -> None:
    def visit(value: Any, pointer: str) -> None:
        assert same_json(resolve_pointer(document, pointer), value)
        if isinstance(value, dict):
            for key, inner in value.items():
                visit(inner, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}")
        if isinstance(value, list):
            for number, inner in enumerate(value):
                visit(inner, f"{pointer}/{number}")

    visit(document, "")
