"""The commands about scenario files: check and schema."""

import json
from pathlib import Path

from client.scenarios import ScenarioError, load, schema
from client.submit import freeze
from schemas.outcome import EXIT_BAD_INPUT, EXIT_VERIFIED
from stores.artifacts import ArtifactStore
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
