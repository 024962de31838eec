"""Both sides of the activity contract agree, and the workflow side stays light."""

import subprocess
import sys
from pathlib import Path

import pytest
from temporalio import activity

from activities.model.port import Gateways
from activities.model.rehearsed import RehearsedGateway
from activities.prompting import SLOTS
from schemas.contract import ActivityRef, Role, all_refs
from schemas.models import Node
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from tests.support.scripted import World
from tests.support.server import settings_of
from workers.roles import Parts, home_activities, workspace_activities
from workflows.control.context import SLOTS_OF_NODE

HEAVY = (
    "litellm",
    "PIL",
    "mss",
    "sqlalchemy",
    "alembic",
    "httpx",
    "openai",
    "activities",
    "stores",
    "client",
    "workers",
)


@pytest.fixture
def registered(tmp_path: Path) -> dict[str, object]:
    settings = settings_of(tmp_path)
    artifacts = ArtifactStore(settings.artifacts_dir)
    gateways = Gateways(rehearsed=RehearsedGateway(artifacts, settings.rehearsed_record), models=None)
    parts = Parts(ledger=Ledger(settings.database_url), artifacts=artifacts, gateways=gateways)
    served = home_activities(settings, parts) + workspace_activities(settings, parts)
    definitions = [activity._Definition.must_from_callable(method) for method in served]
    return {str(definition.name): definition for definition in definitions}


def test_the_workers_serve_exactly_the_contract(registered: dict[str, object]) -> None:
    assert sorted(registered) == sorted(ref.name for ref in all_refs())


@pytest.mark.parametrize("ref", all_refs(), ids=lambda ref: ref.name)
def test_an_activity_takes_and_returns_what_its_reference_says(
    registered: dict[str, object],
    ref: ActivityRef[object, object],  # type: ignore[type-var]
) -> None:
    definition = registered[ref.name]
    assert definition.arg_types == [ref.request]  # type: ignore[attr-defined]
    assert definition.ret_type is ref.reply  # type: ignore[attr-defined]


def test_scripted_activities_stand_under_the_same_names() -> None:
    names = {activity._Definition.must_from_callable(method).name for method in World().registered()}
    assert names == {ref.name for ref in all_refs()}


def test_every_class_bounds_its_attempts_and_what_cannot_be_fenced_gets_one() -> None:
    assert all(1 <= ref.cls.attempts <= 10 for ref in all_refs())
    assert next(ref for ref in all_refs() if ref.name == "perform_action").cls.attempts == 1
    assert {ref.name for ref in all_refs() if ref.cls.role is Role.HOME} >= {node.value for node in Node}


def test_the_context_builder_fills_exactly_the_places_of_each_template() -> None:
    for node in Node:
        assert set(SLOTS_OF_NODE[node]) == SLOTS[node], node


def test_judges_never_see_the_executors_own_summary() -> None:
    judges = (Node.IS_STEP_DONE, Node.VALIDATE_PLAN_STEP, Node.IS_STEP_DONE_BY_VALIDATION)
    assert all("action_summary" not in SLOTS_OF_NODE[node] for node in judges)


def test_the_workflow_package_loads_without_anything_heavy() -> None:
    """In a fresh process: importing the workflow pulls in no model library, no database, nothing of the other side."""
    code = f"import sys, workflows.agent_task; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_line_imports_nothing_heavy_for_its_help() -> None:
    code = (
        "import sys, client.main\n"
        "print([name for name in ('temporalio', 'sqlalchemy', 'litellm', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
