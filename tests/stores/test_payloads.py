"""Payloads: everything is spelled out where others read it, and nothing is lost where only workers do."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import PayloadCodec
from temporalio.exceptions import ApplicationError

from schemas.base import AS_ROWS, Row, rebuild
from schemas.budget import Limits, Spend
from schemas.calls import TextReply
from schemas.checks import CheckResult, FileCheck, Requirement, RequirementState
from schemas.contract import all_refs
from schemas.effects import CallReceipt, CallStatus
from schemas.ids import CallKey
from schemas.messages import Note
from schemas.pricing import Price, Usage
from schemas.state import AgentState, TaskInput
from schemas.texts import BlobRef, ContextText, TextRef
from schemas.workspace import ArchiveRequest, ChecksReply, RunChecksRequest, Workspace, WorkspaceKind, WorkspaceLimits
from stores.artifacts import ArtifactStore
from stores.payloads import SurefootPayloadConverter, hidden_encoding
from stores.temporal import data_converter
from tests.support.codec import ENCODING, Encrypting
from tests.support.scripted import blob_ref, spec

AT = "2026-01-01T00:00:00+00:00"
WORKSPACE = Workspace(
    name="w", kind=WorkspaceKind.LOCAL, queue="q", root="/w", limits=WorkspaceLimits(), seed_manifest=blob_ref("m")
)
RECEIPT = CallReceipt(status=CallStatus.ANSWERED, charged=Spend(model_calls=1))
BETWEEN_WORKERS = (
    WORKSPACE,
    TextReply(receipt=RECEIPT),
    ChecksReply(results=(CheckResult(id="done", met=False, detail=""),)),
)
STATE = AgentState(started_at=AT, requirements=(RequirementState(id="done", mandatory=True),))


def written(value: Any) -> Any:
    (payload,) = SurefootPayloadConverter().to_payloads([value])
    assert payload.metadata["encoding"] == b"json/plain"
    return json.loads(payload.data)


def read(data: Any, kind: type[BaseModel]) -> Any:
    payload = Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(data).encode())
    return SurefootPayloadConverter().from_payloads([payload], [kind])[0]


@pytest.mark.parametrize("value", BETWEEN_WORKERS, ids=lambda value: type(value).__name__)
def test_between_workers_defaults_are_left_out_and_both_forms_are_read(value: BaseModel) -> None:
    short = written(value)
    assert short == value.model_dump(mode="json", exclude_defaults=True, context=AS_ROWS)
    assert short != value.model_dump(mode="json")
    assert read(short, type(value)) == value
    assert read(value.model_dump(mode="json"), type(value)) == value


@pytest.mark.parametrize(
    "value", [TaskInput(spec=spec("q")), Note(), STATE, Limits()], ids=lambda value: type(value).__name__
)
def test_what_clients_read_or_write_says_every_field(value: BaseModel) -> None:
    assert written(value) == value.model_dump(mode="json")


def test_the_state_that_a_run_hands_over_is_short_and_whole() -> None:
    task = TaskInput(spec=spec("q"), state=rebuild(STATE, workspace=WORKSPACE))
    short = written(task)
    assert "paused_by" not in short["state"]
    assert read(short, TaskInput) == task


def test_only_what_a_run_puts_down_of_itself_is_kept_outside_of_history_below_the_limit(
    artifacts: ArtifactStore,
) -> None:
    """A client without our store reads every other payload of usual size: a state of some dozens of kB, say."""
    converter = data_converter(artifacts)
    long = "x" * 9000
    record = ArchiveRequest(workflow_id="w", first_run_id="r", chunk=1, records_jsonl=long)

    async def sent(value: Any) -> tuple[Payload, Any]:
        (payload,) = await converter.encode([value])
        (back,) = await converter.decode([payload], [type(value)])
        return payload, back

    payload, back = asyncio.run(sent(record))
    assert (payload.ByteSize() < 1000, back) == (True, record)
    state = rebuild(STATE, seen_ids=tuple(f"{number:09000}" for number in range(5)))
    payload, back = asyncio.run(sent(state))
    assert (json.loads(payload.data), back) == (state.model_dump(mode="json"), state)


def test_a_default_is_told_apart_from_a_value_that_is_like_it() -> None:
    undone = Requirement(id="done", text="t", check=FileCheck(kind="file", path="p"), mandatory=False)
    request = RunChecksRequest(workspace=WORKSPACE, requirements=(undone,))
    assert written(request)["requirements"][0]["mandatory"] is False
    assert read(written(request), RunChecksRequest) == request


def test_an_unknown_field_is_refused_in_either_form() -> None:
    with pytest.raises(ValidationError, match="extra"):
        read({"results": [], "more": 1}, ChecksReply)
    with pytest.raises(ValidationError, match="5 values, where there are 4 fields"):
        read([1, 2, 3, 4, 5], Spend)


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (CallKey(workflow_id="w", run_id="r", first_run_id="f", seq=0), ["w", "r", "f", 0]),
        (TextRef(sha256="0" * 64, size_bytes=9, tokens=3), ["0" * 64, 9, 3]),
        (ContextText(slot="frame", label="f1", inline="text"), ["frame", "f1", "text"]),
        (Spend(tokens=7), [0, 7]),
        (Spend(), []),
        (Price(input_microusd_per_mtok=3, output_microusd_per_mtok=15), [3, 15]),
        (Usage(input_tokens=1200, output_tokens=80), [1200, 0, 0, 80]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_small_values_are_rows_between_workers(value: Row, row: list[Any]) -> None:
    """The order of their fields is part of the contract: histories hold it."""
    short: Any = value.model_dump(mode="json", exclude_defaults=True, context=AS_ROWS)
    assert short == row
    assert read(row, type(value)) == value
    assert read(value.model_dump(mode="json"), type(value)) == value


def test_every_default_that_is_left_out_is_a_constant() -> None:
    """A default that is computed could be another one when a history is read again."""
    seen: set[type[BaseModel]] = set()
    queue = [model for ref in all_refs() for model in (ref.request, ref.reply)]
    while queue:
        model = queue.pop()
        if model not in seen:
            seen.add(model)
            for field in model.model_fields.values():
                assert field.default_factory in (None, dict), (model, field)
                queue += [kind for kind in _kinds(field.annotation) if issubclass(kind, BaseModel)]
    assert len(seen) > 30


def _kinds(annotation: Any) -> list[type]:
    inner = [kind for part in getattr(annotation, "__args__", ()) for kind in _kinds(part)]
    return [annotation, *inner] if isinstance(annotation, type) else inner


def test_what_a_codec_has_hidden_is_seen_wherever_it_stands(artifacts: ArtifactStore) -> None:
    def hidden(*payloads: Payload) -> str | None:
        event = HistoryEvent()
        event.workflow_execution_signaled_event_attributes.input.payloads.extend(payloads)
        return hidden_encoding(event, lambda claim: [artifacts.get_bytes(_named_in(claim))])

    async def written(codec: PayloadCodec | None, value: Any) -> Payload:
        (payload,) = await data_converter(artifacts, codec).encode([value])
        return payload

    for value in (None, b"raw", Note(text="x"), "long " * 100_000):
        readable, encrypted = asyncio.run(written(None, value)), asyncio.run(written(Encrypting(), value))
        assert hidden(readable) is None
        assert hidden(readable, encrypted) == ENCODING
    event = HistoryEvent()
    event.workflow_execution_started_event_attributes.header.fields["trace"].CopyFrom(encrypted)
    assert hidden_encoding(event, lambda claim: [artifacts.get_bytes(_named_in(claim))]) == ENCODING
    event = HistoryEvent()
    asyncio.run(data_converter(artifacts, Encrypting()).encode_failure(ApplicationError("x"), _failure_of(event)))
    assert hidden_encoding(event, lambda claim: []) == ENCODING
    assert hidden(Payload(data=b"without any encoding")) == ""


def test_a_foreign_claim_on_what_is_no_payload_hides_nothing() -> None:
    event = HistoryEvent()
    claim = event.workflow_execution_signaled_event_attributes.input.payloads.add()
    claim.metadata["encoding"] = b"json/protobuf"
    claim.external_payloads.add().size_bytes = 9
    assert hidden_encoding(event, lambda claim: [b"", b"a text of ours"]) is None


def _failure_of(event: HistoryEvent) -> Failure:
    return event.activity_task_failed_event_attributes.failure


def _named_in(claim: Payload) -> BlobRef:
    data = json.loads(claim.data)["claimData"]
    return BlobRef(sha256=data["sha256"], size_bytes=int(data["size_bytes"]))
