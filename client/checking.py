"""The commands that print what goes over the wire and what may be written: scenario check, schema, input; contract."""

import json
from pathlib import Path

from client.contract import contract
from client.freezing import freeze
from client.pages import contract_page
from client.scenarios import ScenarioError, load, schema
from client.streams import say
from schemas.outcome import EXIT_BAD_INPUT, EXIT_VERIFIED
from schemas.scenario import ModelEntry
from schemas.state import TaskInput
from stores.artifacts import ArtifactStore
from stores.prepared import KEPT, keep_prepared
from stores.settings import Settings


def check(settings: Settings, scenarios: list[Path], as_json: bool) -> int:
    """Check scenario files as `run` would, and start nothing."""
    code = EXIT_VERIFIED
    for path in scenarios:
        problems = []
        try:
            file = load(path)
            freeze(file, settings, ArtifactStore(settings.artifacts_dir))
        except ScenarioError as error:
            problems, code = error.problems, EXIT_BAD_INPUT
        if as_json:
            shown = [
                {"line": item.line, "field": item.field, "file": item.file, "text": item.text} for item in problems
            ]
            print(json.dumps({"file": str(path), "ok": not problems, "problems": shown}, ensure_ascii=False))
        else:
            print("\n".join(str(problem) for problem in problems) if problems else f"{path}: ok")
    return code


def print_schema() -> int:
    """Print the JSON Schema of scenario files."""
    print(json.dumps(schema(), indent=2, ensure_ascii=False))
    return EXIT_VERIFIED


def print_input(settings: Settings, scenario: Path, override: ModelEntry | None) -> int:
    """Print the input that `submit` would send; what it refers to is stored, and nothing is started."""
    spec = freeze(load(scenario), settings, ArtifactStore(settings.artifacts_dir), override)
    text = TaskInput(spec=spec).model_dump_json(indent=2, exclude_none=True)
    references = [choice.rehearsal for choice in spec.models.values() if choice.rehearsal] + [spec.workspace.seed]
    if any(references):
        say(
            f"it refers to files that are stored in {settings.artifacts_dir} now; the workers must use the same store, "
            f"and `surefoot gc` keeps them for {KEPT.days} days, longer only while a task or a schedule refers to them"
        )
        keep_prepared(settings.artifacts_dir, text)
    print(text)
    return EXIT_VERIFIED


def print_contract(as_json: bool) -> int:
    """Print the wire contract."""
    print(json.dumps(contract(), indent=2, ensure_ascii=False) if as_json else contract_page())
    return EXIT_VERIFIED
