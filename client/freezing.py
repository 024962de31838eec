"""From a scenario to a task: everything is resolved and refused before anything starts."""

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from client.problems import PrerequisiteError
from client.scenarios import ScenarioError, ScenarioFile, load_rehearsal
from client.tiers import Script, Tiers
from schemas.contract import workspace_queue
from schemas.errors import SandboxUnavailable, SecretUnresolved, SeedInvalid
from schemas.scenario import ModelEntry
from schemas.task import TaskSpec
from schemas.texts import BlobRef
from schemas.workspace import WorkspaceKind, WorkspaceSpec
from stores.artifacts import ArtifactStore
from stores.sandbox_probe import probe_sandbox
from stores.secrets import Secrets, worker_secrets
from stores.seeds import pack_seed, seed_files
from stores.settings import Settings


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


def is_rehearsed(spec: TaskSpec) -> bool:
    """Whether a script answers in place of a model."""
    return any(choice.rehearsed for choice in spec.models.values())


def _script(file: ScenarioFile, artifacts: ArtifactStore) -> Script | None:
    if file.scenario.rehearsal is None:
        return None
    path = file.beside(file.scenario.rehearsal)
    rehearsal = load_rehearsal(path)
    return Script(artifacts.put_text(rehearsal.stored(str(path)).model_dump_json()), rehearsal)


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
