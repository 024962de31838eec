"""A task's secrets reach its commands by name, and nothing that is stored or returned shows them."""

import base64
import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from activities.workspaces.commands import MAX_OUTPUT_BYTES, TAIL_BYTES
from schemas.actions import ObservationStatus
from schemas.checks import CommandCheck, DirectoryCheck, FileCheck, JsonCheck
from schemas.effects import EffectState
from schemas.secrets import SecretSource
from schemas.workspace import WorkspaceKind
from stores.masking import label
from stores.secrets import Secrets
from tests.activities.workspace_bench import CHAIN, WorkspaceBench
from tests.support.secret_scan import scan
from tests.support.tasks import wait_until

VALUE = "kx9/Tq+7=vB2 mN'z\"0"
SIGN = label("TOKEN")


@pytest.fixture(scope="module", params=list(WorkspaceKind))
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkspaceBench]:
    bench = WorkspaceBench(tmp_path_factory.mktemp("secrets"), request.param, secrets=one_secret())
    yield bench
    assert scan([bench.home / "artifacts", *bench.home.glob("surefoot.db*")], {"TOKEN": VALUE}) == []
    assert scan([bench.home / "workspaces"], {"TOKEN": VALUE}) != [], "the agent's own files are not changed"


def one_secret(value: str = VALUE) -> Secrets:
    return Secrets({"TOKEN": SecretSource(env="VARIABLE")}, {"VARIABLE": value})


def shown(bench: WorkspaceBench, command: str) -> str:
    return bench.shown(bench.act("run", command=command))


def test_a_command_finds_the_value_and_shows_the_name(bench: WorkspaceBench) -> None:
    digest = hashlib.sha256(VALUE.encode()).hexdigest()
    assert shown(bench, 'printf %s "$TOKEN" | sha256sum') == f"{digest}  -\n"
    assert shown(bench, 'echo "it is $TOKEN."') == f"it is {SIGN}.\n"
    assert f"TOKEN={SIGN}\n" in shown(bench, "env")


def test_a_command_cannot_show_it_encoded(bench: WorkspaceBench) -> None:
    script = (
        "import os, json, base64, urllib.parse; t = os.environ['TOKEN']\n"
        "print(json.dumps({'a': t}), repr(t), urllib.parse.quote(t, safe=''), t.encode().hex())\n"
        "print(*(base64.encodebytes(b'x' * n + t.encode() + b'yz').decode() for n in range(60)))"
    )
    (bench.root / "leak.py").write_text(script)
    text = shown(bench, "python3 leak.py")
    assert text.splitlines()[0].count(SIGN) == 4
    assert text.count(SIGN) == 64


def test_a_failure_names_it_in_its_summary(bench: WorkspaceBench) -> None:
    seen = bench.act("run", command='echo "denied: $TOKEN" >&2; exit 3')
    assert (seen.status, seen.summary) == (ObservationStatus.FAILED, f"exit code 3: …denied: {SIGN}")


def test_it_is_on_no_command_line(bench: WorkspaceBench) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(bench.act, "run", command="touch started; while [ ! -e seen ]; do sleep 0.1; done")
        wait_until((bench.root / "started").exists, what="the command's start")
        lines = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                lines.append((process / "cmdline").read_bytes())
            except OSError:
                continue
        (bench.root / "seen").touch()
        assert running.result().status is ObservationStatus.SUCCEEDED
    assert any(b"touch started" in line for line in lines)
    assert not any(VALUE.encode() in line for line in lines)


def test_files_that_hold_it_are_shown_without_it(bench: WorkspaceBench) -> None:
    before = bench.frame("f1")
    bench.act(
        "run",
        command='echo "key: $TOKEN" > key.txt; mkdir d; echo x > "d/$(printf %s "$TOKEN" | od -An -tx1 | tr -d " \n")"',
    )
    frame = bench.frame("f2", before)
    assert f"key: {SIGN}" in bench.text(frame.text)
    assert f"+key: {SIGN}" in bench.text(frame.difference)
    assert f"d/{SIGN}" in bench.text(frame.text)
    assert frame.fingerprint == bench.frame("f3", frame).fingerprint
    assert bench.shown(bench.act("read_file", path="key.txt")) == f"key: {SIGN}\n"
    assert bench.shown(bench.act("search_files", text="key:")) == f"key.txt:1: key: {SIGN}\n"
    assert bench.shown(bench.act("list_files", path="d")).startswith(f"d/{SIGN}")
    bench.act("run", command='echo "key: $TOKEN and more" > key.txt')
    again = bench.frame("f4", frame)
    assert f"-key: {SIGN}\n+key: {SIGN} and more" in bench.text(again.difference)


def test_files_whose_names_are_masked_alike_are_told_apart(bench: WorkspaceBench) -> None:
    (bench.root / "alike").mkdir()
    data = VALUE.encode()
    names = [data.hex(), data.hex().upper(), base64.urlsafe_b64encode(data).decode()]
    for number, name in enumerate(names):
        (bench.root / "alike" / f"{name}.txt").write_text(f"it is number {number}")
    (bench.root / "alike" / f"{SIGN}.txt (2)").write_text("it is called so")
    before = bench.frame("f1")
    assert all(f"it is number {number}" in bench.text(before.text) for number in range(3))
    for name in names:
        (bench.root / "alike" / f"{name}.txt").unlink()
        after = bench.frame("f2", before)
        assert after.fingerprint != before.fingerprint
        assert f"alike/{SIGN}" in bench.text(after.difference)
        before = after


def test_a_long_line_is_masked_before_it_is_cut(bench: WorkspaceBench) -> None:
    bench.act("run", command="""python3 -c "import os; print('w' * 290 + os.environ['TOKEN'])" > wide.txt""")
    assert VALUE[:4] not in bench.shown(bench.act("search_files", text="wwww", path="wide.txt"))


def test_checks_find_the_variable_and_quote_no_value(bench: WorkspaceBench) -> None:
    (bench.root / "config.json").write_text(json.dumps({"token": VALUE}))
    (bench.root / "config.txt").write_text(VALUE)
    run = bench.check(CommandCheck(kind="command", run='echo "got $TOKEN"; test -n "$TOKEN" && exit 1'))
    assert (run.met, run.detail) == (False, f"exit code 1, expected 0: …got {SIGN}")
    assert bench.text(run.output) == f"got {SIGN}\n"
    found = bench.check(JsonCheck(kind="json", path="config.json", pointer="/token", equals="other"))
    assert found.detail == f'config.json at /token is "{SIGN}", expected "other"'
    text = bench.check(FileCheck(kind="file", path="config.txt", equals="other"))
    assert SIGN in text.detail
    matches = FileCheck(kind="file", path="config.txt", matches=r"^kx9/Tq\+7=\S+ mN")
    assert bench.check(matches).met, "what is judged is the file, not what is shown of it"
    bench.act("run", command='touch "0-$(printf %s "$TOKEN" | od -An -tx1 | tr -d " \n")"')
    unchanged = bench.check(DirectoryCheck(kind="directory", only_changed=("none",)))
    assert SIGN in unchanged.detail


def test_what_the_cut_of_a_long_output_leaves_of_it_is_masked(tmp_path: Path) -> None:
    bench = WorkspaceBench(tmp_path, secrets=one_secret())
    head = MAX_OUTPUT_BYTES - TAIL_BYTES - 10
    code = f"import os; t = os.environ['TOKEN']; print('x' * {head} + t + 'y' * 200000 + t + 'z' * {TAIL_BYTES - 10})"
    whole = bench.text(bench.act("run", command=f'python3 -c "{code}"').output)
    assert f"x{SIGN}\n[… " in whole
    assert f"not kept …]\n{SIGN}z" in whole


@pytest.mark.parametrize("end", ["exec sleep 60", "kill -9 $$", "exit 0"])
def test_what_a_command_leaves_half_written_is_masked(bench: WorkspaceBench, end: str) -> None:
    half = VALUE[:10]
    reply = bench.perform(bench.request("run", command=f'printf "key: %.10s" "$TOKEN"; {end}', timeout_seconds=3))
    assert half not in bench.shown(reply.observation)
    assert half not in reply.observation.summary
    assert f"key: {SIGN}" in bench.shown(reply.observation)


def test_a_task_whose_secret_does_not_resolve_gets_no_workspace(tmp_path: Path) -> None:
    with pytest.raises(ApplicationError, match="has 2 characters") as caught:
        WorkspaceBench(tmp_path, secrets=one_secret("ab"))
    assert (caught.value.type, caught.value.non_retryable) == ("SecretUnresolved", True)


def test_a_secret_that_is_gone_half_way_keeps_the_command_from_running_and_charges_nothing(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(VALUE)
    bench = WorkspaceBench(tmp_path / "home", secrets=Secrets({"TOKEN": SecretSource(file=str(file))}, {}))
    file.unlink()
    request = bench.request("run", command="touch ran")
    with pytest.raises(ApplicationError, match=r"secret TOKEN: .* cannot be read: No such file") as caught:
        bench.perform(request)
    assert (caught.value.type, caught.value.non_retryable) == ("SecretUnresolved", True)
    assert [row.state for row in bench.ledger.rows(CHAIN)] == [EffectState.RELEASED]
    assert not (bench.root / "ran").exists()
    file.write_text(f"{VALUE}-rotated")
    assert bench.perform(request).observation.status is ObservationStatus.SUCCEEDED
    assert bench.shown(bench.act("run", command='echo "$TOKEN"')) == f"{SIGN}\n"
