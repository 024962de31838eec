"""The bill equation against the log of a service that speaks HTTP, with the adapter that real models use.

Whatever the service does, a model call is one request, its cost is counted once, and the task's end is typed.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from schemas.effects import EffectKind, EffectState
from schemas.outcome import Outcome, OutcomeKind
from schemas.task import TaskSpec
from stores.settings import Settings
from tests.proof.bench import Ended, Kill, ended, rows_of, start, states, with_client
from tests.proof.stub_process import StubProcess, stub_process
from tests.support.judging import assert_bill_equation
from tests.support.killing_worker import POINTS
from tests.support.server import DevServer
from tests.support.tasks import WorkerProcess, plan, task_spec, verdict

ANSWERED = 3
"""Requests of a task that nothing happens to: plan, is_step_done, propose_action."""


@dataclass(frozen=True)
class Case:
    """What the service does with a task's first requests, and what comes of it."""

    behaviour: dict[str, Any]
    requests: int
    times: int = 1
    error_type: str | None = None
    ambiguous: int = 0
    timeout_seconds: int = 60


CASES = {
    "server error": Case({"kind": "server_error"}, ANSWERED + 1, ambiguous=1),
    "reset after billing": Case({"kind": "reset"}, ANSWERED + 1, ambiguous=1),
    "stall": Case({"kind": "stall"}, ANSWERED + 1, ambiguous=1, timeout_seconds=2),
    "malformed body": Case({"kind": "malformed"}, ANSWERED + 1, ambiguous=1),
    "missing usage": Case({"content": json.dumps(plan("CASE")), "usage": None}, ANSWERED, ambiguous=1),
    "rate limit": Case({"kind": "rate_limited", "retry_after": "1"}, ANSWERED + 1),
    "empty choices": Case({"kind": "empty_choices"}, ANSWERED + 1),
    "empty reply": Case({"content": ""}, ANSWERED + 1),
    "no JSON": Case({"content": "First of all, a plan is a wonderful thing."}, ANSWERED + 1),
    "cut off": Case({"content": '{"why": "this goes on and', "finish_reason": "length"}, ANSWERED + 1),
    "no JSON at all": Case({"content": "No."}, ANSWERED + 3, times=3),
    "server errors": Case({"kind": "server_error"}, 3, times=9, error_type="ModelUnanswered", ambiguous=3),
    "quota": Case({"kind": "quota"}, 1, error_type="ModelQuota"),
    "key refused": Case({"kind": "unauthorized"}, 1, error_type="ModelAuth"),
    "context": Case({"kind": "context"}, 1, error_type="ContextExceeded"),
}


def rules() -> list[dict[str, Any]]:
    """Return the service's rules: for each case what happens first, then what a helpful model would answer."""
    found = []
    for name, case in CASES.items():
        behaviour = {**case.behaviour}
        if behaviour.get("content"):
            behaviour["content"] = behaviour["content"].replace("CASE", tag(name))
        found.append({"when": rf"(?s)write the steps.*{tag(name)}", "times": case.times, **behaviour})
    names = [*CASES, *(f"{node} {point}" for node in KILLED for point in POINTS)]
    found += [{"when": rf"(?s)write the steps.*{tag(name)}", "content": json.dumps(plan(tag(name)))} for name in names]
    action = {"tool": "write_file", "arguments": {"path": "out.txt", "content": "done\n"}}
    proposal = {"thought": "write it", "actions": [action], "more": False}
    found.append({"when": "You are the executor", "content": json.dumps(proposal)})
    found.append({"when": "before anybody acts", "content": json.dumps(verdict(False))})
    return found


def tag(name: str) -> str:
    """Return a word that stands in every prompt of a task: in its goal and in the title of its step."""
    return f"case-{name.replace(' ', '-')}!"


def spec_of(settings: Settings, stub: StubProcess, name: str, **choice: Any) -> TaskSpec:
    """Return the task of a case."""
    return task_spec(settings, stub.choice(**choice), goal=f"Write out.txt, {tag(name)}")


def judge(settings: Settings, stub: StubProcess, end: Ended) -> int:
    """Check a task's account against the service's log, and return its ambiguous calls."""
    rows = rows_of(settings, end.first_run_id)
    calls = [row for row in rows if row.kind is EffectKind.MODEL]
    assert end.spend_microusd == sum(row.charged.microusd for row in rows)
    assert all(row.state is not EffectState.INTENT for row in rows)
    assert_bill_equation(rows, stub.bill(), end.spend_microusd)
    assert {entry["key"] for entry in stub.requests(end.handle.id)} <= {row.effect_id for row in calls}
    return sum(row.state is EffectState.AMBIGUOUS for row in calls)


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StubProcess]:
    with stub_process(tmp_path_factory.mktemp("stub") / "bill.jsonl", rules()) as running:
        yield running


@pytest.fixture(scope="module")
def ends(home: DevServer, stub: StubProcess) -> dict[str, Ended]:
    """Run all cases at once, on one worker that has the adapter for real models."""
    serving = WorkerProcess(home.settings)

    async def work(client: Client) -> dict[str, Ended]:
        handles = {}
        for name, case in CASES.items():
            spec = spec_of(home.settings, stub, name, timeout_seconds=case.timeout_seconds)
            handles[name] = await start(client, home.settings, spec)
        found = await asyncio.gather(*(ended(handle) for handle in handles.values()))
        return dict(zip(handles, found, strict=True))

    try:
        return with_client(home.settings, work)
    finally:
        serving.kill()


@pytest.mark.parametrize("name", CASES)
def test_what_a_service_may_do(home: DevServer, stub: StubProcess, ends: dict[str, Ended], name: str) -> None:
    case, end = CASES[name], ends[name]
    finished = Outcome(kind=OutcomeKind.FINISHED)
    kind = OutcomeKind.FAILED if case.error_type else finished.kind
    assert (end.outcome.kind, end.outcome.error_type) == (kind, case.error_type), end.outcome
    requests = stub.requests(end.handle.id)
    assert len(requests) == case.requests
    assert judge(home.settings, stub, end) == case.ambiguous
    rows = [row for row in rows_of(home.settings, end.first_run_id) if row.kind is EffectKind.MODEL]
    again = len(requests) - len({entry["key"] for entry in requests})
    assert again == (1 if name == "rate limit" else 0)  # only what was certainly not billed is sent again as it was
    assert len(rows) == len(requests) - again


KILLED = ("plan", "propose_action")


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("node", KILLED)
def test_sigkill_around_a_request(home: DevServer, stub: StubProcess, tmp_path: Path, node: str, point: str) -> None:
    settings = home.settings
    end = Kill(point, node, tmp_path / "killed").run(settings, spec_of(settings, stub, f"{node} {point}"))
    assert end.outcome.kind is OutcomeKind.FINISHED, end.outcome
    ambiguous = judge(settings, stub, end)
    requests = len(stub.requests(end.handle.id))
    assert max(Counter(entry["key"] for entry in stub.requests(end.handle.id)).values()) == 1
    rows = rows_of(settings, end.first_run_id)
    if point == "between_activities":  # the next call may have begun by then, and is lost then
        assert states(rows, node) == [EffectState.DONE]
        assert ambiguous <= 1
        assert ANSWERED <= requests <= ANSWERED + ambiguous
        return
    lost = point in ("after_intent", "after_effect")
    assert states(rows, node) == ([EffectState.AMBIGUOUS] if lost else []) + [EffectState.DONE]
    assert ambiguous == lost
    assert requests == ANSWERED + (point == "after_effect")  # answered, and the answer died with the worker
