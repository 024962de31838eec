"""From a scenario to a started task: everything is resolved and refused before anything starts."""

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from datetime import timedelta

from pydantic import ValidationError
from temporalio.client import Client, WorkflowHandle
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from client.problems import PrerequisiteError
from client.scenarios import ScenarioError, ScenarioFile, load_rehearsal
from client.tiers import Script, Tiers
from schemas.base import clip
from schemas.contract import TASK_WORKFLOW, WORKFLOW_TASK_TIMEOUT_SECONDS, SearchAttribute, workspace_queue
from schemas.errors import SandboxUnavailable, SecretUnresolved, SeedInvalid
from schemas.ids import task_id
from schemas.outcome import Status
from schemas.scenario import ModelEntry
from schemas.state import TaskInput, TaskResult
from schemas.task import TaskSpec
from schemas.telemetry import Attribute, Operation
from schemas.texts import BlobRef
from schemas.workspace import WorkspaceKind, WorkspaceSpec
from stores.artifacts import ArtifactStore
from stores.sandbox_probe import probe_sandbox
from stores.secrets import Secrets, worker_secrets
from stores.seeds import pack_seed, seed_files
from stores.settings import Settings
from stores.temporal import register_search_attributes
from stores.tracing import span

SUMMARY_CHARACTERS = 200


def freeze(
    file: ScenarioFile,
    settings: Settings,
    artifacts: ArtifactStore,
    override: ModelEntry | None = None,
    environ: Mapping[str, str] = os.environ,
) -> TaskSpec:
    """Return the task with tiers, prices, script and seed resolved; ``override`` answers every tier instead.

    Raises ScenarioError with every problem found, PrerequisiteError where a sandbox is asked for and none works.
    """
    scenario = file.scenario
    if scenario.workspace.kind is WorkspaceKind.SANDBOX:
        reason = probe_sandbox()
        if reason:
            raise PrerequisiteError(str(SandboxUnavailable(reason)))
    tiers = Tiers(file, settings, _script(file, artifacts), override, environ)
    models = tiers.resolve()
    seed = _seed(file, artifacts, settings, environ)
    if tiers.problems:
        raise ScenarioError(tiers.problems)
    try:
        return TaskSpec(
            name=scenario.name,
            goal=scenario.goal,
            instructions=scenario.instructions,
            task_type=scenario.task_type,
            requirements=scenario.requirements,
            evaluator=scenario.evaluator,
            bounds=scenario.bounds,
            limits=scenario.limits.frozen_limits(),
            models=models,
            tools=tuple(tool.value for tool in scenario.tools),
            secrets=scenario.secrets,
            workspace=WorkspaceSpec(
                kind=scenario.workspace.kind,
                queue=workspace_queue(settings.queue_prefix, scenario.workspace.kind.value, socket.gethostname()),
                seed=seed,
                files=scenario.workspace.files,
                limits=scenario.workspace.limits,
            ),
        )
    except ValidationError as error:
        raise ScenarioError([file.problem((), item["msg"]) for item in error.errors()]) from error


async def start(client: Client, settings: Settings, spec: TaskSpec) -> WorkflowHandle[object, TaskResult]:
    """Start the task under a new id and return its handle. Raises RPCError where the server refuses."""
    await register_search_attributes(client)
    workflow_id = task_id(spec.name, os.urandom(7))
    attributes = {
        Attribute.OPERATION: Operation.INVOKE_AGENT.value,
        Attribute.AGENT_NAME: spec.name,
        Attribute.CONVERSATION: workflow_id,
    }
    with span(f"{Operation.INVOKE_AGENT.value} {spec.name}", attributes, client=True):
        return await _start(client, settings, spec, workflow_id)


async def _start(
    client: Client, settings: Settings, spec: TaskSpec, workflow_id: str
) -> WorkflowHandle[object, TaskResult]:
    return await client.start_workflow(
        TASK_WORKFLOW,
        TaskInput(spec=spec),
        id=workflow_id,
        task_queue=settings.queue_prefix,
        result_type=TaskResult,
        task_timeout=timedelta(seconds=WORKFLOW_TASK_TIMEOUT_SECONDS),
        static_summary=clip(f"{spec.name}: {' '.join(spec.goal.split())}", SUMMARY_CHARACTERS),
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(SearchAttributeKey.for_keyword(SearchAttribute.STATUS), Status.PLANNING.value),
                SearchAttributePair(SearchAttributeKey.for_keyword(SearchAttribute.TASK_TYPE), spec.task_type),
            ]
        ),
    )


def _script(file: ScenarioFile, artifacts: ArtifactStore) -> Script | None:
    if file.scenario.rehearsal is None:
        return None
    rehearsal = load_rehearsal(file.beside(file.scenario.rehearsal))
    return Script(artifacts.put_text(rehearsal.model_dump_json()), rehearsal)


def _seed(
    file: ScenarioFile, artifacts: ArtifactStore, settings: Settings, environ: Mapping[str, str]
) -> BlobRef | None:
    if file.scenario.workspace.seed is None:
        return None
    try:
        packed = pack_seed(file.beside(file.scenario.workspace.seed))
    except SeedInvalid as error:
        raise ScenarioError([file.problem(("workspace", "seed"), str(error))]) from error
    problems = [
        file.problem(
            ("workspace", "seed"),
            f"{shown} holds the value of secret {', '.join(names)}, and a seed is stored as it is: take it out; "
            "commands find a secret that the task names as an environment variable",
        )
        for shown, names in _secrets_in(packed, _known_here(file, settings, environ))
    ]
    if problems:
        raise ScenarioError(problems)
    return artifacts.put_bytes(packed)


def _known_here(file: ScenarioFile, settings: Settings, environ: Mapping[str, str]) -> Secrets:
    """Return what of the task's secrets this client can resolve, with the keys in its environment."""
    secrets = worker_secrets(settings, environ)
    secrets.learn_environment()
    for name in file.scenario.secrets:
        with contextlib.suppress(SecretUnresolved):  # the worker has it
            secrets.resolve([name])
    return secrets


def _secrets_in(packed: bytes, secrets: Secrets) -> Iterator[tuple[str, list[str]]]:
    for name, content in seed_files(packed):
        found = {*secrets.names_in(name.encode("utf-8", "surrogateescape")), *secrets.names_in(content)}
        if found:
            yield secrets.mask(name), sorted(found)
