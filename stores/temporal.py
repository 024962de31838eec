"""How every process of Surefoot speaks to Temporal: one converter, one plugin, one way to connect."""

import asyncio
import dataclasses
import os
from typing import Any

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
)
from temporalio.envconfig import ClientConfig
from temporalio.plugin import SimplePlugin
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from stores.artifacts import ArtifactStore
from stores.offload import SignedConverter, artifact_storage
from stores.own_server import OWN_CONFIGURATION, names_own_server
from stores.payloads import SurefootPayloadConverter
from stores.running import SERVER_FILE, ServerRecord, read_record
from stores.search_attributes import SEARCH_ATTRIBUTES
from stores.settings import Settings
from stores.tracing import Mask, start_tracing, tracing_plugins

CONNECT_TIMEOUT_SECONDS = 10


class ServerUnreachable(Exception):
    """There is no Temporal server to speak to."""

    def __init__(self, address: str, reason: str, remedy: str) -> None:
        """Keep the address, why it cannot be reached, and what to do."""
        super().__init__(f"no Temporal server at {address}: {reason}. {remedy}")
        self.address = address
        self.reason = reason
        self.remedy = remedy


def data_converter(artifacts: ArtifactStore, codec: PayloadCodec | None = None) -> DataConverter:
    """Return the converter of all processes: pydantic JSON, then ``codec``, then big payloads to ``artifacts``.

    With a codec the texts of failures are encoded too; they would stay readable beside encrypted payloads.
    """
    converter = SignedConverter(
        payload_converter_class=SurefootPayloadConverter, external_storage=artifact_storage(artifacts)
    )
    if codec is None:
        return converter
    return dataclasses.replace(
        converter, payload_codec=codec, failure_converter_class=DefaultFailureConverterWithEncodedAttributes
    )


def surefoot_plugin(artifacts: ArtifactStore) -> SimplePlugin:
    """Return the plugin for ``Client.connect`` and ``Replayer``: converter and sandbox.

    Workers take it over from their client: given to both it would be applied twice. Roles pass workflows and
    activities to their workers themselves.
    """
    return SimplePlugin("surefoot", data_converter=data_converter(artifacts), workflow_runner=_let_schemas_through)


def _let_schemas_through(runner: WorkflowRunner | None) -> WorkflowRunner:
    """Import the schemas once for all workflows: they hold no state and read no clock."""
    if not isinstance(runner, SandboxedWorkflowRunner | None):
        return runner
    sandbox = runner or SandboxedWorkflowRunner()
    restrictions = sandbox.restrictions.with_passthrough_modules("schemas", "rfc8785")
    return dataclasses.replace(sandbox, restrictions=restrictions)


async def connect(settings: Settings, mask: Mask = str) -> Client:
    """Return a client of the server that Temporal's environment configuration names, else of the embedded one.

    A process that is configured to trace does so from here on, with ``mask`` over all texts of its spans. Raises
    ServerUnreachable, TelemetryUnavailable.
    """
    start_tracing(settings, mask)
    config, remedy = _target(settings)
    address = str(config.pop("target_host"))
    plugins = [*tracing_plugins(), surefoot_plugin(ArtifactStore(settings.artifacts_dir))]
    try:
        return await asyncio.wait_for(Client.connect(address, plugins=plugins, **config), CONNECT_TIMEOUT_SECONDS)
    except TimeoutError as error:
        raise ServerUnreachable(address, f"no answer within {CONNECT_TIMEOUT_SECONDS} s", remedy) from error
    except (RuntimeError, RPCError) as error:
        raise ServerUnreachable(address, _short(str(error)), remedy) from error


def _target(settings: Settings) -> tuple[dict[str, Any], str]:
    """Return the arguments of ``Client.connect``, and what to do where they lead nowhere."""
    if names_own_server():
        variables = ", ".join(variable for variable in OWN_CONFIGURATION if os.environ.get(variable))
        remedy = f"Check that server, or unset {variables} to use the embedded one."
        try:
            config: dict[str, Any] = {**ClientConfig.load_client_connect_config()}
        except RuntimeError as error:
            raise ServerUnreachable("an unknown address", _short(str(error)), remedy) from error
        return {"target_host": "localhost:7233", **config}, remedy
    path = settings.run_dir / SERVER_FILE
    server = read_record(path, ServerRecord)
    if server is None:
        raise ServerUnreachable(
            "an unknown address", f"the embedded server is not running (no record in {path})", "Start it: surefoot up"
        )
    return {"target_host": server.address, "namespace": server.namespace}, "Start the embedded server: surefoot up"


def _short(text: str) -> str:
    """Return a connection error without the transport's nested types, where it has a message of its own."""
    *_, last = text.split('message: "')
    return last.split('"')[0] if last is not text and last else text


async def register_search_attributes(client: Client) -> None:
    """Register what is missing of SEARCH_ATTRIBUTES; runs that use an unregistered one cannot start.

    Several processes may do so at once. Raises RPCError where the server refuses.
    """
    namespace = client.namespace
    known = await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace=namespace))
    missing = [key for key in SEARCH_ATTRIBUTES if key.name not in known.custom_attributes]
    if not missing:
        return
    request = AddSearchAttributesRequest(namespace=namespace)
    for key in missing:
        request.search_attributes[key.name] = IndexedValueType.ValueType(key.indexed_value_type)
    try:
        await client.operator_service.add_search_attributes(request)
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:
            raise
