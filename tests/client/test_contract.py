"""The published contract says what is: computed from the code, kept in docs/, true of the workflow."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError
from temporalio import workflow
from typer.testing import CliRunner

from client import docs
from client.contract import contract
from client.main import app
from schemas.messages import SignalName
from schemas.outcome import Outcome, OutcomeKind, StopReason, exit_code
from schemas.state import TaskInput
from tests.client import newer_worker
from tests.support.scripted import spec
from workflows.agent_task import AgentTask


def validator(name: str) -> Draft202012Validator:
    """Return a validator of one of the contract's types, as somebody else would make it of the printed JSON."""
    whole = json.loads(json.dumps(contract()))
    return Draft202012Validator({"$defs": whole["$defs"], "$ref": f"#/$defs/{name}"})


def test_the_pages_in_docs_are_what_the_code_says() -> None:
    assert docs.stale() == {}


def test_a_stale_page_is_told_with_its_difference(tmp_path: Path) -> None:
    docs.write(tmp_path)
    assert docs.stale(tmp_path) == {}
    (tmp_path / "cli.md").write_text("old\n")
    (tmp_path / "contract.json").unlink()
    found = docs.stale(tmp_path)
    assert set(found) == {"cli.md", "contract.json"}
    assert "-old" in found["cli.md"]


def test_workflow_signals_and_queries_are_the_registered_ones() -> None:
    definition = workflow._Definition.must_from_class(AgentTask)
    published = contract()["workflows"]
    assert set(published) == {definition.name}
    task = published[definition.name]
    assert set(task["queries"]) == set(definition.queries)
    assert set(task["updates"]) == set(definition.updates)
    assert set(task["signals"]) == {name.value for name in SignalName}


def test_every_outcome_and_its_exit_codes_are_published() -> None:
    published = contract()["outcomes"]
    for kind in OutcomeKind:
        for verified in (None, True, False):
            reason = StopReason.BUDGET_USD if kind is OutcomeKind.STOPPED_INCOMPLETE else None
            error = "ModelAuth" if kind is OutcomeKind.FAILED else None
            outcome = Outcome(kind=kind, verified=verified, reason=reason, error_type=error)
            assert exit_code(outcome) in published[kind.value]["exit_codes"]
    assert "unknown" not in published["STOPPED_INCOMPLETE"]["reasons"]


def test_the_published_schema_takes_what_a_worker_takes_and_refuses_what_it_refuses() -> None:
    check = validator("TaskInput")
    task: dict[str, Any] = TaskInput(spec=spec("q")).model_dump(mode="json")
    check.validate(task)
    for wrong in ({**task, "colour": 1}, {**task, "contract": 2}, {"state": None}):
        with pytest.raises(ValidationError):
            check.validate(wrong)
    with pytest.raises(ValidationError):
        validator("Summary").validate(newer_worker.summary())


def test_the_command_prints_the_same_for_people_and_programs() -> None:
    printed = CliRunner().invoke(app, ["contract", "--json"])
    assert json.loads(printed.stdout) == json.loads((docs.FOLDER / "contract.json").read_text())
    assert "| signal | `steer` | [Note](#note)" in CliRunner().invoke(app, ["contract"]).stdout
