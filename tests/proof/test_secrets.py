"""Secrets go through every tool, failure, prompt, reply, log and span of real tasks; what is kept of them is scanned.

The judge has an encoder of its own. A marker that is no secret goes the same ways and must be found: the scan looks
where things are.
"""

import base64
import json
import secrets as chance
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from schemas.checks import Check, CommandCheck, JsonCheck, Requirement
from schemas.outcome import OutcomeKind
from schemas.task import Bounds, TaskSpec
from stores.artifacts import ArtifactStore
from stores.masking import label
from stores.settings import Settings
from tests.proof.bench import Ended, ended, events_of, final_state, serving_home, start, with_client
from tests.proof.stub_process import StubProcess, stub_process
from tests.support.otlp import Receiver
from tests.support.secret_scan import encodings, found_in, scan
from tests.support.tasks import (
    WorkerProcess,
    file_requirement,
    plan,
    rehearsed_choice,
    reply,
    task_spec,
    verdict,
    workspace_spec,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NAMES = ("A_TOKEN", "B_FILE", "C_COMMAND")
KEY = "STUB_KEY"
DATABASE = "PGPASSWORD"
TOOLS = ("run", "read_file", "write_file", "edit_file", "list_files", "search_files")
MARKER = f"marker-{chance.token_hex(12)}"
LEAK = f"""
import base64, html, json, os, shlex, urllib.parse
print({MARKER!r})
for name in {NAMES!r}:
    value = os.environ[name]
    data = value.encode()
    print(value, json.dumps([value]), repr(value), urllib.parse.quote(value, safe=""), data.hex(), data.hex().upper())
    go = json.dumps(value, ensure_ascii=False)
    for sign in "<>&":
        go = go.replace(sign, "\\\\u%04x" % ord(sign))
    print(go, "".join("%%%02x" % byte for byte in data), html.escape(value), shlex.quote(value))
    print(data.hex(" "), data.hex(":"))
    print("".join(character + chr(0) for character in value))
    print("".join("    " + line + chr(10) for line in base64.encodebytes(data * 3).decode().splitlines()))
    for before in range(4):
        print(base64.b64encode(b"x" * before + data + b"yz").decode())
    print(base64.encodebytes(b"w" * 50 + data + b"w" * 50).decode())
    with open(f"{{name}}.txt", "w") as file:
        file.write("the key: " + value + "\\n")
    with open(f"{{name}}.b64", "w") as file:
        file.write(base64.encodebytes(b"w" * 50 + data * 3).decode())
    with open(data.hex() + ".json", "w") as file:
        json.dump({{"key": value, "marker": {MARKER!r}}}, file)
with open("leak.json", "w") as file:
    json.dump(dict(os.environ), file)
"""
LEAK_ENDLESSLY = 'yes "$A_TOKEN $B_FILE $C_COMMAND"'


@dataclass(frozen=True)
class Ran:
    """What the tasks have left behind."""

    settings: Settings
    values: dict[str, str]
    exports: Path
    rehearsed: Ended
    http: Ended
    asked: list[dict[str, Any]]
    """What the model's service received of the second task."""
    spans: bytes
    """What a receiver of traces was sent, with all content."""


def value_of(name: str) -> str:
    """Return a new value whose encodings all differ."""
    return f"{name[0]}{chance.token_hex(6)}/+ <é>&%'\"\\{chance.token_urlsafe(12)}?"


def action(tool: str, **arguments: Any) -> dict[str, Any]:
    """Return a proposed action."""
    return {"tool": tool, "arguments": arguments}


def propose(*actions: dict[str, Any], when: str = "") -> dict[str, Any]:
    """Return a reply that proposes actions where the prompt shows ``when``."""
    answer = {"thought": "leak", "actions": list(actions), "more": True}
    return reply("propose_action", answer, when=[when] if when else [])


def through_every_tool(settings: Settings) -> TaskSpec:
    """Return a task that reads, writes, lists, searches, edits, fails and runs out of time with its secrets."""
    refused = [
        action("run", command="python3 leak.py; env"),
        action("run", command=f'printf "%s is refused, {MARKER}\\n" "$A_TOKEN" >&2; exit 4'),
    ]
    read = [
        *(action("read_file", path=f"{name}.{end}") for name in NAMES for end in ("txt", "b64")),
        action("search_files", text="key"),
        action("list_files"),
        action("read_file", path="leak.json"),
        action("run", command='cat *.b64; for f in *.json; do echo "$f"; cat "$f"; done'),
        action("edit_file", path="A_TOKEN.txt", old="the key", new="my key"),
        action("edit_file", path="A_TOKEN.txt", old="no such passage", new="x"),
    ]
    # a batch ends with the first action that fails, and what failed last decides what comes next
    script = [
        reply("plan", plan(f"Leak {MARKER}")),
        reply("is_step_done", verdict(False)),
        reply("validate_plan_step", verdict(False)),
        reply("summarize_actions", MARKER),
        propose(action("write_file", path="out.txt", content="done\n"), when="does not occur in A_TOKEN.txt"),
        propose(*read, when="killed at its time limit"),
        propose(action("run", command=LEAK_ENDLESSLY), when="exit code 4"),
        propose(*refused),
    ]
    shows = CommandCheck(kind="command", run='printf "%s " "$A_TOKEN" "$B_FILE" "$C_COMMAND"; exit 1')
    compares = JsonCheck(kind="json", path="leak.json", pointer="/A_TOKEN", equals="something else")
    checks: dict[str, Check] = {"shows": shows, "compares": compares}
    optional = [Requirement(id=name, text=name, check=check, mandatory=False) for name, check in checks.items()]
    return task_spec(
        settings,
        rehearsed_choice(ArtifactStore(settings.artifacts_dir), script),
        requirements=(file_requirement("out.txt"), *optional),
        evaluator=(shows, compares),
        bounds=Bounds(max_plan_step_actions=30, action_timeout_seconds=3),
        tools=TOOLS,
        secrets=NAMES,
        workspace=workspace_spec(settings, files={"leak.py": LEAK}),
    )


def rules(values: dict[str, str]) -> list[dict[str, Any]]:
    """Return a service that says every secret in every way and place, fails in every way, and refuses the key."""
    said = " ".join(form for value in values.values() for form in encodings(value).values())
    failing = {"kind": "error", "message": f"the key {values[KEY]} is {said}"}
    actions = [action("run", command=f"echo {MARKER} {said}"), action(f"no-{values['A_TOKEN']}", path=said)]
    proposal = {"thought": said[:400], "actions": actions, "more": False}
    judged = {"reason": said[:400], "citation": {"source": "f1", "quote": said[:400]}, "result": True}
    step = {"title": f"Do {values['B_FILE']}", "instruction": said, "requirements": []}
    planner = "You are the planner"
    return [
        {"when": planner, "times": 1, "status": 500, **failing},
        {"when": planner, "times": 1, "status": 429, "retry_after": "1", **failing},
        {"when": planner, "times": 1, "content": f"{MARKER} no plan but {said}", "reasoning": said},
        {"when": planner, "times": 1, "content": json.dumps({"why": said[:400], "steps": [step]}), "reasoning": said},
        {"when": "before anybody acts", "content": json.dumps(judged)},
        {"when": "You are the executor", "content": json.dumps(proposal)},
        {"when": "write down what", "content": f"{MARKER} {said}"},
        {"when": "You check whether", "content": json.dumps(judged)},
        {"when": planner, "kind": "unauthorized"},
    ]


def through_a_model(settings: Settings, stub: StubProcess) -> TaskSpec:
    """Return a task whose model says secrets, and whose last request is refused with the key in the answer."""
    return task_spec(
        settings,
        stub.choice(api_key_env=KEY),
        goal=f"Find the {MARKER}",
        bounds=Bounds(max_plan_versions=2, max_plan_step_iterations=1),
        secrets=NAMES,
    )


def configure(settings: Settings, folder: Path, values: dict[str, str]) -> dict[str, str]:
    """Give the worker a secret of each kind; return the environment that it needs."""
    (folder / "b-file").write_text(values["B_FILE"] + "\n")
    (folder / "c-command").write_text(values["C_COMMAND"] + "\n")
    sources = {
        "A_TOKEN": 'env = "OUTSIDE_A"',
        "B_FILE": f'file = "{folder / "b-file"}"',
        "C_COMMAND": f'command = ["cat", "{folder / "c-command"}"]',
    }
    text = "".join(f"[secrets.{name}]\n{source}\n" for name, source in sources.items())
    (settings.home / "config.toml").write_text(text)
    return {"OUTSIDE_A": values["A_TOKEN"], KEY: values[KEY], DATABASE: values[DATABASE], "SUREFOOT_LOG_LEVEL": "debug"}


async def export(client: Client, folder: Path) -> None:
    """Write every history, as Temporal exports it and decoded."""
    async for run in client.list_workflows():
        history = await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()
        text = history.to_json()
        (folder / f"{run.run_id}.json").write_text(text)
        (folder / f"{run.run_id}.decoded.json").write_text(json.dumps(json.loads(text, object_hook=_decoded)))


def _decoded(item: dict[str, Any]) -> dict[str, Any]:
    data = item.get("data")
    return {**item, "data": base64.b64decode(data).decode("utf-8", "replace")} if isinstance(data, str) else item


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    outside, exports = tmp_path_factory.mktemp("outside"), tmp_path_factory.mktemp("exports")
    values = {name: value_of(name) for name in NAMES} | {KEY: f"sk-{chance.token_urlsafe(30)}"}
    values[DATABASE] = value_of(DATABASE)
    with (
        serving_home(tmp_path_factory.mktemp("home")) as home,
        stub_process(outside / "bill.jsonl", rules(values)) as stub,
        Receiver() as traces,
    ):
        settings = home.settings
        telling = {"SUREFOOT_TELEMETRY__OTLP_ENDPOINT": traces.url, "SUREFOOT_TELEMETRY__CONTENT": "true"}
        serving = WorkerProcess(settings, **configure(settings, outside, values), **telling)

        async def work(client: Client) -> tuple[Ended, Ended]:
            rehearsed = await ended(await start(client, settings, through_every_tool(settings)))
            http = await ended(await start(client, settings, through_a_model(settings, stub)))
            await export(client, exports)
            return rehearsed, http

        try:
            rehearsed, http = with_client(settings, work)
            serving.stop()
            sent = b"".join(traces.bodies)
            yield Ran(settings, values, exports, rehearsed, http, stub.requests(http.handle.id), sent)
        finally:
            serving.kill()


def kept(ran: Ran) -> list[Path]:
    """Return all that is kept of tasks, but for the files that their commands have made themselves."""
    settings = ran.settings
    return [ran.exports, *(place for place in settings.home.iterdir() if place != settings.workspaces_dir)]


def test_the_tasks_went_all_the_ways_that_were_meant(ran: Ran) -> None:
    assert ran.rehearsed.outcome.kind is OutcomeKind.FINISHED, ran.rehearsed.outcome
    assert (ran.http.outcome.kind, ran.http.outcome.error_type) == (OutcomeKind.FAILED, "ModelAuth"), ran.http.outcome
    assert scan([ran.rehearsed.root], ran.values) != [], "the commands had the values"
    events = events_of(ran.settings, final_state(ran.settings, ran.rehearsed))
    text = "\n".join(event.text for event in events)
    assert label("A_TOKEN") in text
    assert "timed_out" in text
    behaviours = [entry["behaviour"] for entry in ran.asked]
    assert behaviours.count("error") == 2
    assert behaviours[-1] == "unauthorized"
    assert any("no plan but" in json.dumps(entry["body"]) for entry in ran.asked), "a repair quotes a reply"


@pytest.mark.parametrize("name", [*NAMES, KEY, DATABASE])
def test_nothing_that_is_kept_holds_a_secret(ran: Ran, name: str) -> None:
    assert scan(kept(ran), {name: ran.values[name]}) == []


def test_no_prompt_holds_a_secret(ran: Ran) -> None:
    bodies = "\n".join(json.dumps(entry["body"], ensure_ascii=False) for entry in ran.asked)
    assert found_in(bodies.encode(), ran.values) == []
    assert f"Bearer {ran.values[KEY]}" in {entry["authorization"] for entry in ran.asked}


def test_no_span_holds_a_secret(ran: Ran) -> None:
    assert found_in(ran.spans, ran.values) == []
    assert MARKER.encode() in ran.spans
    assert label("A_TOKEN").encode() in ran.spans, "with all content: prompts, replies, arguments and results"


def test_the_scan_looks_where_things_are_kept(ran: Ran) -> None:
    finds = scan(kept(ran), {"MARKER": MARKER})
    home = ran.settings.home
    for place in (home / "temporal.db", home / "surefoot.db", home / "artifacts", ran.exports):
        assert any(find.startswith(str(place)) for find in finds), f"{place} in {finds}"
    assert "activity failed" in (home / "worker.log").read_text(), "the log speaks of the tasks, and quotes nothing"
    (history,) = (ran.exports / f"{ran.rehearsed.handle.first_execution_run_id}.json",)
    assert any(find.startswith(f"{history}: MARKER (base64") for find in finds)


def test_the_scan_finds_a_planted_secret_in_every_encoding(ran: Ran, tmp_path: Path) -> None:
    for number, value in enumerate(ran.values.values()):
        forms = encodings(value)
        assert len(forms) == 15
        for encoding, form in forms.items():
            planted = tmp_path / f"{number}-planted"
            planted.write_bytes(b"\x00some bytes\xff" + form.encode() + b"\n")
            assert f"{planted}: X ({encoding})" in scan([tmp_path], {"X": value})
            planted.unlink()
