"""Everything that every process shares when it speaks to Temporal, against a real server."""

import asyncio
import base64
import hashlib
import json
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.client import Client, WorkflowFailureError, WorkflowHistory
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.converter import PayloadCodec
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer, Worker

from schemas.errors import ArtifactMissing
from schemas.texts import BlobRef
from stores.artifacts import ArtifactStore
from stores.own_server import OWN_CONFIGURATION, names_own_server
from stores.running import SERVER_FILE
from stores.search_attributes import SEARCH_ATTRIBUTES
from stores.temporal import (
    ServerUnreachable,
    connect,
    data_converter,
    register_search_attributes,
    surefoot_plugin,
)
from tests.stores.probe_workflow import HOST_IDENTITY, Probe, big_reply
from tests.support.server import DevServer, client_of, running_server, settings_of
from workers.server import find_server

QUEUE = "stores-probe"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with running_server(tmp_path_factory.mktemp("home")) as started:
        yield started


@pytest.fixture(autouse=True)
def no_other_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in OWN_CONFIGURATION:
        monkeypatch.delenv(variable, raising=False)


async def run_probe(client: Client, workflow_id: str, size: int) -> tuple[tuple[int, str], WorkflowHistory]:
    async with Worker(client, task_queue=QUEUE, workflows=[Probe], activities=[big_reply]):
        handle = await client.start_workflow(Probe.run, size, id=workflow_id, task_queue=QUEUE)
        return await handle.result(), await handle.fetch_history()


def claims_in(history: WorkflowHistory) -> list[dict[str, str]]:
    """Return the claim data of every external payload of a history."""
    return [
        json.loads(payload.data)["claimData"]
        for event in history.events
        for payload in event.activity_task_completed_event_attributes.result.payloads
        if payload.external_payloads
    ]


def test_a_result_of_a_megabyte_leaves_a_claim_in_history_and_replays_from_the_same_store_only(
    server: DevServer, tmp_path: Path
) -> None:
    store = ArtifactStore(server.settings.artifacts_dir)

    async def scenario() -> None:
        client = await client_of(server.settings)
        (length, identity), history = await run_probe(client, "big", 1_000_000)
        assert length == 1_000_000
        assert identity == HOST_IDENTITY, "schemas are imported once, not in each sandbox"
        [claim] = claims_in(history)
        assert set(claim) == {"sha256", "size_bytes", "signature"}
        data = store.get_bytes(BlobRef(sha256=claim["sha256"], size_bytes=int(claim["size_bytes"])))
        assert hashlib.sha256(data).hexdigest() == claim["sha256"]
        assert sum(event.ByteSize() for event in history.events) < 10_000
        await Replayer(workflows=[Probe], plugins=[surefoot_plugin(store)]).replay_workflow(history)
        elsewhere = surefoot_plugin(ArtifactStore(tmp_path / "elsewhere"))
        replayed = await Replayer(workflows=[Probe], plugins=[elsewhere]).replay_workflow(
            history, raise_on_replay_failure=False
        )
        assert replayed.replay_failure is not None

    asyncio.run(scenario())


def test_a_small_result_stays_in_history(server: DevServer) -> None:
    async def scenario() -> None:
        _, history = await run_probe(await client_of(server.settings), "small", 200_000)
        assert claims_in(history) == []

    asyncio.run(scenario())


def test_a_result_beyond_what_the_store_takes_is_a_typed_failure_after_one_attempt(
    server: DevServer, tmp_path: Path
) -> None:
    small = surefoot_plugin(ArtifactStore(tmp_path, max_bytes=300_000))

    async def scenario() -> None:
        address = (await client_of(server.settings)).service_client.config.target_host
        client = await Client.connect(address, plugins=[small])
        with pytest.raises(WorkflowFailureError) as caught:
            await run_probe(client, "too-big", 400_000)
        error = caught.value.cause
        assert isinstance(error, ActivityError)
        assert isinstance(error.cause, ApplicationError)
        assert (error.cause.type, error.cause.non_retryable) == ("PayloadTooLarge", True)
        assert "more than 300,000" in error.cause.message
        history = await client.get_workflow_handle("too-big").fetch_history()
        started = [event.activity_task_started_event_attributes for event in history.events]
        assert [attributes.attempt for attributes in started if attributes.attempt] == [1]

    asyncio.run(scenario())


def test_two_processes_register_the_search_attributes_at_once_and_a_run_can_use_them(tmp_path: Path) -> None:
    program = str(find_server(settings_of(tmp_path)))
    values = {str: "x", bool: True, float: 1.5}
    attributes = TypedSearchAttributes(
        [SearchAttributePair(key, values[key.value_type]) for key in SEARCH_ATTRIBUTES],
    )

    async def scenario() -> None:
        async with await WorkflowEnvironment.start_local(dev_server_existing_path=program) as bare:
            client = bare.client
            with pytest.raises(RPCError, match="no mapping defined"):
                await client.start_workflow("Probe", 1, id="w", task_queue=QUEUE, search_attributes=attributes)
            await asyncio.gather(register_search_attributes(client), register_search_attributes(client))
            await register_search_attributes(client)
            await client.start_workflow("Probe", 1, id="w", task_queue=QUEUE, search_attributes=attributes)

    asyncio.run(scenario())


def test_without_a_record_of_a_server_the_error_says_how_to_start_one(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    with pytest.raises(ServerUnreachable, match=r"not running.*run/server\.json.*surefoot up"):
        asyncio.run(connect(settings))
    settings.run_dir.mkdir()
    (settings.run_dir / SERVER_FILE).write_text("{half")
    with pytest.raises(ServerUnreachable, match="not running"):
        asyncio.run(connect(settings))


def test_a_server_that_is_gone_is_named_with_the_reason(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        pass
    with pytest.raises(ServerUnreachable) as caught:
        asyncio.run(connect(server.settings))
    assert caught.value.address.startswith("127.0.0.1:")
    assert caught.value.reason == "Connection refused"
    assert "surefoot up" in caught.value.remedy


def test_temporals_own_configuration_goes_before_the_embedded_server(
    server: DevServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not names_own_server()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    monkeypatch.setenv("TEMPORAL_ADDRESS", address)
    assert names_own_server()
    with pytest.raises(ServerUnreachable, match=r"Connection refused\. Check that server, or unset TEMPORAL_ADDRESS"):
        asyncio.run(connect(server.settings))
    monkeypatch.delenv("TEMPORAL_ADDRESS")
    profile = tmp_path / "temporal.toml"
    profile.write_text(f'[profile.other]\naddress = "{address}"\nnamespace = "n"\n')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(profile))
    monkeypatch.setenv("TEMPORAL_PROFILE", "other")
    with pytest.raises(ServerUnreachable, match=f"no Temporal server at {address}"):
        asyncio.run(connect(server.settings))
    monkeypatch.setenv("TEMPORAL_PROFILE", "missing")
    with pytest.raises(ServerUnreachable, match="missing"):
        asyncio.run(connect(server.settings))


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


class Scrambled(PayloadCodec):
    """Hides payloads from a reader; stands for encryption."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload(data=base64.b85encode(payload.SerializeToString())) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload.FromString(base64.b85decode(payload.data)) for payload in payloads]


def test_a_codec_covers_big_payloads_and_the_texts_of_failures(tmp_path: Path) -> None:
    async def scenario() -> None:
        converter = data_converter(ArtifactStore(tmp_path), Scrambled())
        big = "secret " * 100_000
        [payload] = await converter.encode([big])
        assert len(payload.SerializeToString()) < 1000
        [stored] = [path for path in files_of(tmp_path) if path.name != "claims.key"]
        assert b"secret" not in stored.read_bytes()
        assert await converter.decode([payload]) == [big]
        failure = Failure()
        await converter.encode_failure(ApplicationError("the secret"), failure)
        assert "secret" not in str(failure)
        assert "the secret" in str(await converter.decode_failure(failure))
        plain = Failure()
        await data_converter(ArtifactStore(tmp_path)).encode_failure(ApplicationError("readable"), plain)
        assert plain.message == "readable"

    asyncio.run(scenario())


def test_a_payload_whose_artifact_is_gone_is_missing(tmp_path: Path) -> None:
    async def scenario() -> None:
        converter = data_converter(ArtifactStore(tmp_path))
        [payload] = await converter.encode(["x" * 300_000])
        for path in files_of(tmp_path):
            if path.name != "claims.key":
                path.unlink()
        with pytest.raises(ArtifactMissing):
            await converter.decode([payload])

    asyncio.run(scenario())
