"""What a worker tells about itself: traces, metrics and log lines, and that nobody who listens can hold it up."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from temporalio.client import WorkflowFailureError

from client.embedded import child_environment
from schemas.base import rebuild
from schemas.checks import Before
from schemas.contract import STATE_QUERY, TASK_WORKFLOW, WORKFLOW_TASK_TIMEOUT_SECONDS
from schemas.outcome import EXIT_PREREQUISITE, EXIT_VERIFIED, OutcomeKind
from schemas.state import AgentState, TaskInput, TaskResult
from schemas.task import Bounds, Caps, TaskSpec
from schemas.telemetry import Metric
from stores.artifacts import ArtifactStore
from stores.running import SERVER_FILE, ServerRecord, read_record
from stores.settings import Settings, TelemetrySettings
from tests.support.otlp import Receiver, attributes
from tests.support.processes import free_port
from tests.support.server import DevServer, client_of, running_server
from tests.support.tasks import (
    WorkerProcess,
    commands,
    file_requirement,
    plan,
    rehearsed_choice,
    reply,
    task_spec,
    verdict,
)

SCENARIO = Path(__file__).parents[2] / "scenarios" / "hello-file.yaml"
TOLD = b"greets Surefoot"  # stands in the goal, in prompts, in replies and in the file
SCRIPT = [
    reply("plan", plan("Write out.txt")),
    reply("is_step_done", verdict(False)),
    reply("propose_action", commands("echo done > out.txt")),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with running_server(tmp_path_factory.mktemp("home")) as server:
        asyncio.run(_connected(server.settings))
        yield server


async def _connected(settings: Settings) -> None:
    await client_of(settings)


def with_telemetry(settings: Settings, **telemetry: Any) -> Settings:
    return rebuild(settings, telemetry=TelemetrySettings(**telemetry))


def a_worker(settings: Settings, module: str = "workers.main", **environment: str) -> WorkerProcess:
    given = {name: value for name, value in child_environment(settings).items() if name.startswith("SUREFOOT_")}
    flags = ["--without-litellm"] if module == "workers.main" else []
    return WorkerProcess(settings, *flags, module=module, **{**given, **environment})


def run_command(settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    server = read_record(settings.run_dir / SERVER_FILE, ServerRecord)
    assert server is not None
    environment = {**child_environment(settings), "TEMPORAL_ADDRESS": server.address}
    command = [sys.executable, "-m", "client.main", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)


def run_task(settings: Settings, spec: TaskSpec, workflow_id: str, ask_after: bool = False) -> TaskResult:
    async def go() -> TaskResult:
        client = await client_of(rebuild(settings, telemetry=TelemetrySettings()))
        handle = await client.start_workflow(
            TASK_WORKFLOW,
            TaskInput(spec=spec),
            id=workflow_id,
            task_queue=settings.queue_prefix,
            task_timeout=timedelta(seconds=WORKFLOW_TASK_TIMEOUT_SECONDS),
            result_type=TaskResult,
        )
        result: TaskResult = await handle.result()
        if ask_after:  # a query of a run that has ended replays it once more
            await handle.query(STATE_QUERY, result_type=AgentState)
        return result

    return asyncio.run(go())


def short_task(settings: Settings, **changes: Any) -> TaskSpec:
    return task_spec(settings, rehearsed_choice(ArtifactStore(settings.artifacts_dir), SCRIPT), **changes)


def named(spans: list[Span], beginning: str) -> list[Span]:
    return [span for span in spans if span.name.startswith(beginning)]


def test_one_trace_leads_from_the_command_line_through_the_run_to_models_and_tools(home: DevServer) -> None:
    with Receiver() as receiver:
        settings = with_telemetry(home.settings, otlp_endpoint=receiver.url)
        worker = a_worker(settings)
        try:
            done = run_command(settings, "run", str(SCENARIO))
            assert done.returncode == EXIT_VERIFIED, done.stderr
        finally:
            assert worker.stop() == 0
        spans = receiver.spans
        assert len({span.trace_id for span in spans}) == 1
        assert len({span.span_id for span in spans}) == len(spans)
        by_id = {span.span_id: span for span in spans}
        assert [span.name for span in spans if not span.parent_span_id] == ["invoke_agent hello file"]
        assert all(span.parent_span_id in by_id for span in spans if span.parent_span_id)
        client, run = named(spans, "invoke_agent")
        assert (client.kind, run.kind) == (Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_INTERNAL)
        assert run.parent_span_id == client.span_id
        assert attributes(run)["surefoot.outcome"] == "FINISHED"
        for chat in named(spans, "chat rehearsed"):
            told = attributes(chat)
            assert chat.kind == Span.SPAN_KIND_CLIENT
            assert told["gen_ai.operation.name"] == "chat"
            assert told["gen_ai.provider.name"] == "rehearsed"
            assert told["gen_ai.usage.input_tokens"] > told["gen_ai.usage.output_tokens"] > 0
            assert told["gen_ai.response.finish_reasons"] == ["stop"]
        chats = [span for span in named(spans, "chat") if attributes(span)["surefoot.node"] == "plan"]
        assert [by_id[span.parent_span_id].name for span in chats] == ["plan"]
        (tool,) = named(spans, "execute_tool")
        assert (tool.name, tool.kind) == ("execute_tool write_file", Span.SPAN_KIND_INTERNAL)
        assert by_id[tool.parent_span_id].name == "RunActivity:perform_action"
        assert attributes(tool)["gen_ai.tool.call.id"] == "v1.s1.i1.a1"
        assert not [body for body in receiver.bodies if TOLD in body], "content leaves only where it is asked for"
        conversation = {attributes(span).get("gen_ai.conversation.id") for span in named(spans, "chat")}
        assert conversation == {done.stdout.split()[1]}


def test_content_is_in_spans_where_it_is_asked_for(home: DevServer) -> None:
    with Receiver() as receiver:
        settings = with_telemetry(home.settings, otlp_endpoint=receiver.url, content=True)
        worker = a_worker(settings)
        try:
            run_task(settings, short_task(settings), "task-told")
        finally:
            worker.stop()
        chats = [attributes(span) for span in named(receiver.spans, "chat")]
        asked = next(chat for chat in chats if chat["surefoot.node"] == "plan")
        assert "Make the files" in json.loads(asked["gen_ai.input.messages"])[0]["parts"][0]["content"]
        assert json.loads(asked["gen_ai.system_instructions"])[0]["type"] == "text"
        answer = json.loads(asked["gen_ai.output.messages"])[0]
        assert (answer["role"], answer["finish_reason"]) == ("assistant", "stop")
        assert "Write out.txt" in answer["parts"][0]["content"]
        (tool,) = named(receiver.spans, "execute_tool")
        assert json.loads(attributes(tool)["gen_ai.tool.call.arguments"])["command"] == "echo done > out.txt"


def test_a_chain_of_runs_that_are_replayed_all_the_time_is_one_trace_without_doubles(home: DevServer) -> None:
    with Receiver() as receiver:
        settings = with_telemetry(home.settings, otlp_endpoint=receiver.url)
        worker = a_worker(settings, module="tests.support.uncached_worker")
        try:
            spec = rebuild(
                short_task(settings),
                requirements=(file_requirement("never.txt"),),
                bounds=Bounds(max_plan_versions=2, max_plan_step_iterations=2),
                caps=Caps(events=100),
            )
            result = run_task(settings, spec, "task-replayed", ask_after=True)
        finally:
            assert worker.stop() == 0
        assert result.outcome.kind is OutcomeKind.STOPPED_INCOMPLETE
        spans = receiver.spans
        assert len({span.trace_id for span in spans}) == 1
        assert [span_id for span_id, count in Counter(span.span_id for span in spans).items() if count > 1] == []
        runs = sorted(named(spans, "invoke_agent"), key=lambda span: span.start_time_unix_nano)
        assert len(runs) > 1
        assert [span.parent_span_id for span in runs] == [b"", *[span.span_id for span in runs[:-1]]]
        assert [attributes(span).get("surefoot.outcome") for span in runs[:-1]] == [None] * (len(runs) - 1)
        assert attributes(runs[-1])["surefoot.outcome"] == "STOPPED_INCOMPLETE(max_plan_versions)"
        inside = {span.span_id for span in runs}
        assert all(span.parent_span_id in inside for span in named(spans, "RunActivity:"))
        assert all(run.end_time_unix_nano > run.start_time_unix_nano for run in runs)


def test_what_fails_is_marked_by_its_type_and_quotes_nothing(home: DevServer) -> None:
    script = [*SCRIPT[:2], reply("propose_action", commands("echo out-of-luck; exit 3"))]
    choice = rehearsed_choice(ArtifactStore(home.settings.artifacts_dir), script)
    with Receiver() as receiver:
        settings = with_telemetry(home.settings, otlp_endpoint=receiver.url)
        worker = a_worker(settings)
        try:
            bounds = Bounds(max_plan_versions=1, max_plan_step_iterations=1, max_plan_step_actions=1)
            run_task(settings, task_spec(settings, choice, bounds=bounds), "task-unlucky")
            broken = rebuild(short_task(settings), requirements=(file_requirement("readme.txt", contains="hello"),))
            must_fail = rebuild(broken.requirements[0], before=Before.MUST_FAIL)
            with pytest.raises(WorkflowFailureError):
                run_task(settings, rebuild(broken, requirements=(must_fail,)), "task-broken")
        finally:
            worker.stop()
        (tool,) = named(receiver.spans, "execute_tool")
        assert tool.status.code == Status.STATUS_CODE_ERROR
        assert attributes(tool)["error.type"] == "failed"
        failed = next(
            span
            for span in named(receiver.spans, "invoke_agent")
            if attributes(span)["gen_ai.conversation.id"] == "task-broken"
        )
        assert failed.status.code == Status.STATUS_CODE_ERROR
        assert attributes(failed)["error.type"] == "RequirementAlreadyMet"
        assert not [span for span in receiver.spans if span.status.message or span.events]


@pytest.mark.slow
@pytest.mark.parametrize("there", [True, False])
def test_a_receiver_that_takes_nothing_holds_nobody_up(home: DevServer, there: bool) -> None:
    with Receiver(answers=False) as silent:
        url = silent.url if there else f"http://127.0.0.1:{free_port()}"
        settings = with_telemetry(home.settings, otlp_endpoint=url)
        worker = a_worker(settings)
        try:
            done = run_command(settings, "run", str(SCENARIO))
            assert done.returncode == EXIT_VERIFIED, done.stderr
            assert "export" not in done.stderr, "the exporter complains in logs, not among a command's messages"
        finally:
            assert worker.stop() == 0
        assert bool(silent.bodies) is there


def test_metrics_count_calls_tokens_money_actions_and_outcomes(home: DevServer) -> None:
    address = f"127.0.0.1:{free_port()}"
    settings = with_telemetry(home.settings, prometheus=address, service_name="here")
    worker = a_worker(settings)
    try:
        result = run_task(settings, short_task(settings), "task-counted")
        shown = scrape(address)
    finally:
        worker.stop()
    spend = result.summary.spend
    assert total(shown, Metric.MODEL_CALLS, status="answered", model="rehearsed") == spend.model_calls == 3
    assert total(shown, Metric.MODEL_CALLS, node="plan") == 1
    assert total(shown, Metric.MODEL_MICROUSD) == spend.microusd > 0
    assert total(shown, Metric.MODEL_TOKENS) == spend.tokens > 0
    assert total(shown, Metric.ACTIONS, tool="run", status="succeeded") == 1
    assert total(shown, Metric.OUTCOMES, kind="FINISHED", service_name="here") == 1
    assert "temporal_workflow_task_execution_latency_seconds_bucket" in shown


def scrape(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def total(shown: str, metric: Metric, **labels: str) -> float:
    lines = [line for line in shown.splitlines() if line.startswith(f"{metric.value}_total{{")]
    wanted = [line for line in lines if all(f'{name}="{value}"' in line for name, value in labels.items())]
    return sum(float(line.rsplit(" ", 1)[1]) for line in wanted)


def test_an_address_of_metrics_that_is_taken_is_told_with_the_way_out(home: DevServer) -> None:
    with Receiver() as other:
        settings = with_telemetry(home.settings, prometheus=other.url.removeprefix("http://"))
        command = [sys.executable, "-m", "workers.main", "--without-litellm"]
        done = subprocess.run(command, env=child_environment(settings), capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_PREREQUISITE
    assert "telemetry.prometheus: metrics cannot be shown" in done.stderr
    assert "SUREFOOT_TELEMETRY__PROMETHEUS" in done.stderr


def test_every_line_that_an_activity_logs_says_whose_it_is(home: DevServer) -> None:
    with Receiver() as receiver:
        settings = with_telemetry(home.settings, otlp_endpoint=receiver.url)
        log = settings.home / "worker.log"
        before = log.stat().st_size if log.exists() else 0
        worker = a_worker(settings, SUREFOOT_LOG_LEVEL="debug")
        try:
            run_task(settings, short_task(settings), "task-logged")
        finally:
            worker.stop()
        assert worker.said_later == b"", "standard output holds the one line that says ready"
        lines = [json.loads(line) for line in log.read_bytes()[before:].splitlines()]
        mine = [line for line in lines if line.get("workflow_id") == "task-logged"]
        started = [line for line in mine if line["event"] == "activity started"]
        completed = [line for line in mine if line["event"] == "activity completed"]
        assert [line["activity"] for line in started] == [line["activity"] for line in completed]
        assert {"plan", "propose_action", "perform_action", "record_run"} <= {line["activity"] for line in completed}
        ids = {span.span_id.hex(): span.trace_id.hex() for span in receiver.spans}
        for line in completed:
            assert line["run_id"]
            assert line["attempt"] == 1
            assert ids[line["span_id"]] == line["trace_id"]
        said = [line["event"] for line in mine if line["logger"] == "temporalio.workflow"]
        assert said == ["status PLANNING", "status RUNNING", "status CLOSING", "outcome FINISHED"]
        assert not [line for line in lines if "echo done" in json.dumps(line)], "no line quotes what was asked"


WITHOUT_OPENTELEMETRY = """
import sys
sys.modules["opentelemetry"] = None
from {module} import main
sys.exit(main())
"""


def test_without_opentelemetry_everything_works_until_tracing_is_asked_for(home: DevServer) -> None:
    def run(module: str, *arguments: str, **telemetry: Any) -> subprocess.CompletedProcess[str]:
        server = read_record(home.settings.run_dir / SERVER_FILE, ServerRecord)
        assert server is not None
        environment = {
            **child_environment(with_telemetry(home.settings, **telemetry)),
            "TEMPORAL_ADDRESS": server.address,
        }
        code = WITHOUT_OPENTELEMETRY.format(module=module)
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)

    assert run("client.main", "ps").returncode == EXIT_VERIFIED
    for module, arguments in (("client.main", ["ps"]), ("workers.main", ["--without-litellm"])):
        done = run(module, *arguments, otlp_endpoint="http://127.0.0.1:9")
        assert done.returncode == EXIT_PREREQUISITE, done.stderr
        assert "OpenTelemetry is not installed here; install it: make setup" in done.stderr


def test_a_process_that_does_not_trace_never_imports_opentelemetry() -> None:
    code = "import sys, workers.main, client.following; print([n for n in sys.modules if 'opentelemetry' == n[:13]])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ})
    assert done.stdout == "[]\n"
