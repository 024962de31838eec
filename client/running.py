"""The commands that start and follow tasks: run, submit, watch.

What needs Temporal's client is imported while the embedded server and its worker start: both take a second or two.
"""

import importlib
import threading
from pathlib import Path

from client.embedded import start_embedded
from client.freezing import freeze, is_rehearsed
from client.lines import REHEARSED_NOTICE
from client.scenarios import load
from client.streams import say
from schemas.scenario import ModelEntry
from schemas.task import TaskSpec
from schemas.workspace import WorkspaceKind
from stores.artifacts import ArtifactStore
from stores.settings import Settings


def run(settings: Settings, scenario: Path, override: ModelEntry | None, worker: bool, as_json: bool) -> int:
    """Check, start what is missing, submit, follow to the end; return the exit code of the outcome."""
    spec = _checked(settings, scenario, override)
    _start_missing(settings, worker)
    from client import following

    return following.run(settings, spec, worker, as_json)


def submit(settings: Settings, scenario: Path, override: ModelEntry | None, worker: bool, as_json: bool) -> int:
    """Check, start what is missing, submit, and print the task's id."""
    spec = _checked(settings, scenario, override)
    _start_missing(settings, worker)
    from client import following

    return following.submit(settings, spec, worker, as_json)


def watch(settings: Settings, task_id: str, as_json: bool) -> int:
    """Follow a task to its end; return the exit code of the outcome."""
    from client import following

    return following.watch(settings, task_id, as_json)


def _checked(settings: Settings, scenario: Path, override: ModelEntry | None) -> TaskSpec:
    file = load(scenario)
    spec = freeze(file, settings, ArtifactStore(settings.artifacts_dir), override)
    if spec.workspace.kind is WorkspaceKind.LOCAL:
        say("workspace kind local: commands run without isolation, as this user")
    if is_rehearsed(spec):
        say(REHEARSED_NOTICE)
    return spec


def _start_missing(settings: Settings, worker: bool) -> None:
    threading.Thread(target=importlib.import_module, args=("client.following",), daemon=True).start()
    start_embedded(settings, worker)
