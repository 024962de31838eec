"""What a payload's JSON holds: everything where others read it, only what is not the default between workers.

What clients send and are answered (input, signals, results, queries) is spelled out: they read it without our schemas.
What a workflow asks of an activity, what that answers, and the state that a run hands over to the next one are read by
our schemas alone, thousands of times in a history. There a field with its default says nothing and is left out.
"""

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.message import DecodeError, Message
from pydantic import BaseModel
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import CompositePayloadConverter, DefaultPayloadConverter, JSONPlainPayloadConverter

from schemas.base import AS_ROWS
from schemas.contract import all_refs
from schemas.state import TaskInput
from schemas.workspace import ArchiveRequest, RecordRunRequest

RECORDS = frozenset({ArchiveRequest, RecordRunRequest})
"""What a run puts down of itself: it is on its way to the artifact store anyway, so the history need not hold it."""
RECORD_MARK = "surefoot-record"
"""Name of the metadata that tells the storage so."""
BETWEEN_WORKERS = frozenset(model for ref in all_refs() for model in (ref.request, ref.reply))


class CompactJson(PydanticJSONPlainPayloadConverter):
    """Pydantic JSON, without defaults between workers. Either form is read."""

    def to_payload(self, value: Any) -> Payload | None:
        """Return ``value`` as JSON."""
        if not isinstance(value, BaseModel) or not _between_workers(value):
            return super().to_payload(value)
        data = value.model_dump_json(exclude_defaults=True, context=AS_ROWS).encode()
        marks = {RECORD_MARK: b"1"} if type(value) in RECORDS else {}
        return Payload(metadata={"encoding": self.encoding.encode(), **marks}, data=data)

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        """Return what the JSON says, as ``type_hint``. Raises ValidationError."""
        if isinstance(type_hint, type) and issubclass(type_hint, BaseModel):
            return type_hint.model_validate_json(payload.data)
        return super().from_payload(payload, type_hint)


def _between_workers(value: BaseModel) -> bool:
    if isinstance(value, TaskInput):
        return value.state is not None
    return type(value) in BETWEEN_WORKERS


_JSON = CompactJson()
_CONVERTERS = tuple(
    _JSON if isinstance(converter, JSONPlainPayloadConverter) else converter
    for converter in DefaultPayloadConverter.default_encoding_payload_converters
)


class SurefootPayloadConverter(CompositePayloadConverter):
    """Temporal's converter with our JSON. The SDK makes one for every payload, so its parts are shared."""

    def __init__(self) -> None:
        """Use the shared parts."""
        super().__init__(*_CONVERTERS)


ENCODINGS = frozenset(converter.encoding.encode() for converter in _CONVERTERS)
"""Encodings in which a payload's data can be searched as it stands; any other one hides it, a codec's above all."""


def payloads_in(message: Message) -> Iterator[Payload]:
    """Yield every payload of a message of Temporal's, wherever it stands in it."""
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            parts = [part for part in value.values() if isinstance(part, Message)]
        else:
            parts = value if field.is_repeated else [value]
        for part in parts:
            yield from payloads_in(part)


def hidden_encoding(message: Message, stored: Callable[[Payload], list[bytes]]) -> str | None:
    """Return the encoding of the first payload of ``message`` that cannot be searched, None where all can.

    ``stored`` gives the contents of the artifacts that stand for a payload that is a claim.
    """
    for payload in payloads_in(message):
        kept = [_parsed(data) for data in stored(payload)] if payload.external_payloads else []
        for found in (payload, *(inner for inner in kept if inner is not None)):
            encoding = found.metadata.get("encoding", b"")
            if encoding not in ENCODINGS:
                return encoding.decode("utf-8", "replace")
    return None


def _parsed(data: bytes) -> Payload | None:
    """Return the payload that an artifact holds; None where it holds none, as one that a foreign claim names."""
    try:
        return Payload.FromString(data) if data else None
    except DecodeError:
        return None
