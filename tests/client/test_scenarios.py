"""A scenario is checked as a whole: every problem with file, line and field, and what is allowed."""

from decimal import Decimal
from pathlib import Path

import jsonschema
import pytest
import yaml

from client.scenarios import ScenarioError, load, load_rehearsal, schema
from schemas.scenario import ToolName
from schemas.workspace import WorkspaceKind
from tests.client.scenario_files import HEAD, SCRIPT, write_scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def problems_of(folder: Path, text: str) -> list[str]:
    """Return the problems of a scenario, without the folder's name."""
    with pytest.raises(ScenarioError) as caught:
        load(write_scenario(folder, text))
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def test_a_rehearsal_given_as_a_scenario_is_told_in_one_line(tmp_path: Path) -> None:
    assert problems_of(tmp_path, "# a script\n" + SCRIPT % "true") == [
        "task.yaml:2: a rehearsed model's script, not a scenario; "
        "name the scenario whose field `rehearsal` names this file"
    ]


def test_what_is_left_out_has_its_documented_default(tmp_path: Path) -> None:
    scenario = load(write_scenario(tmp_path, HEAD)).scenario
    assert scenario.tools == tuple(ToolName)
    assert scenario.workspace.kind is WorkspaceKind.SANDBOX
    assert scenario.bounds.max_plan_versions == 20
    assert scenario.limits.frozen_limits().microusd is None


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.name)
def test_the_scenarios_that_come_with_the_product_are_valid(path: Path) -> None:
    if path.name.endswith(".rehearsal.yaml"):
        assert load_rehearsal(path).replies
    else:
        assert load(path).scenario.requirements


@pytest.mark.parametrize(
    ("usd", "microusd"),
    [("0.1", 100_000), ('"0.1"', 100_000), ("0.000001", 1), ("1234.567891", 1_234_567_891), ("3", 3_000_000)],
)
def test_money_becomes_micro_dollars_exactly(tmp_path: Path, usd: str, microusd: int) -> None:
    scenario = load(write_scenario(tmp_path, f"{HEAD}limits: {{usd: {usd}}}")).scenario
    assert scenario.limits.frozen_limits().microusd == microusd


def test_prices_become_micro_dollars_exactly(tmp_path: Path) -> None:
    price = "{input_usd_per_mtok: 0.1, output_usd_per_mtok: '0.4', cached_input_usd_per_mtok: 0.025}"
    text = f"{HEAD}models: {{default: {{model: openai/x, api_base: 'http://localhost:1', price: {price}}}}}"
    entry = load(write_scenario(tmp_path, text)).scenario.models.default
    assert entry is not None
    assert not isinstance(entry, str)
    assert entry.price is not None
    assert entry.price.input_usd_per_mtok == Decimal("0.1")
    frozen = entry.price.frozen_price()
    assert (frozen.input_microusd_per_mtok, frozen.output_microusd_per_mtok) == (100_000, 400_000)
    assert (frozen.cached_input_microusd_per_mtok, frozen.cache_write_microusd_per_mtok) == (25_000, None)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("colour: red", "task.yaml:7: colour: unknown field; allowed: name, goal, "),
        ("requirments: []", "task.yaml:7: requirments: unknown field; did you mean requirements?"),
        ("bounds: {max_plan_versions: 0}", "task.yaml:7: bounds.max_plan_versions: got 0, must be greater than or"),
        ("bounds:\n  max_plan_versions: 5000", "task.yaml:8: bounds.max_plan_versions: got 5000, must be less than"),
        ("bounds: {max_plan_versions: '3'}", 'got "3", must be a valid integer; allowed: a whole number from 1 up to'),
        ("bounds: {max_plan_versions: 3.5}", "got 3.5, must be a valid integer"),
        ("bounds: {max_plan_versions: true}", "got true, must be a valid integer"),
        ("limits: {usd: -1}", "task.yaml:7: limits.usd: got -1, must be greater than 0; allowed: a number above 0"),
        ("limits: {usd: 0.0000001}", "limits.usd: got 1e-07, must have no more than 6 decimal places"),
        ("limits: {usd: lots}", 'limits.usd: got "lots", must be a valid decimal'),
        ("limits: {usd: 1e999}", "limits.usd: got"),
        ("limits: {tokens: 0}", "limits.tokens: got 0"),
        ("goal: again", "task.yaml:7: goal: stands twice; first on line 2"),
        ("instructions: yes", "task.yaml:7: instructions: YAML reads yes as a truth value"),
        ("instructions: 5", "task.yaml:7: instructions: got 5, must be a valid string; allowed: text"),
        ("tools: [run, fly]", 'task.yaml:7: tools[1]: got "fly", must be'),
        ("tools: [run, run]", "task.yaml:7: tools: each tool may be named once"),
        ("tools: []", "task.yaml:7: tools: got a list, must have at least 1 item"),
        ("workspace: {kind: docker}", "task.yaml:7: workspace.kind: got \"docker\", must be 'sandbox' or 'local'"),
        ("workspace: {seed: nowhere}", "task.yaml:7: workspace.seed: no such folder: nowhere; paths are relative to"),
        ("workspace: {seed: task.yaml}", "task.yaml:7: workspace.seed: task.yaml is no folder"),
        ("workspace:\n  files:\n    ../x: y", "task.yaml:9: workspace.files.../x: must be a relative path inside"),
        ("workspace: {files: {/etc/x: y}}", "must be a relative path inside the workspace"),
        ("rehearsal: nowhere.yaml", "task.yaml:7: rehearsal: no such file: nowhere.yaml"),
        ("models: {default: rehearsed}", "a tier is rehearsed, so rehearsal must name the script"),
        ("models: {default: 5}", "task.yaml:7: models.default: got 5, must be a mapping; allowed: text"),
        ("models: {judge: {api_base: 'http://x'}}", "task.yaml:7: models.judge.model: missing; needed: A LiteLLM"),
        ("models: {judge: {model: x, api_base: ftp://x}}", "models.judge.api_base: got"),
        ("models: {judge: {model: x, temperature: 1}}", "models.judge.temperature: unknown field; allowed: model, "),
        ("evaluator: [{kind: files, path: x}]", "task.yaml:7: evaluator[0]: `kind` is unknown; allowed: 'file'"),
        ("evaluator: [{path: x}]", "task.yaml:7: evaluator[0]: `kind` is missing; allowed: 'file', 'command'"),
        ("evaluator: [{kind: file, pth: x}]", "evaluator[0].pth: unknown field; did you mean path?"),
        ("evaluator: [{kind: file, path: x, matches: '('}]", "evaluator[0]: matches is not a regular expression"),
        ("evaluator: [{kind: file, path: ../x}]", "evaluator[0]: must be a relative path inside the workspace"),
        ("evaluator: [{kind: directory}]", "evaluator[0]: a directory check needs only_changed, unchanged or created"),
        ("evaluator: [{kind: command, run: ' '}]", "evaluator[0]: run is blank"),
        ("evaluator: [{kind: file, path: x, exists: false, contains: y}]", "exists: false looks at nothing else"),
    ],
)
def test_a_wrong_field_is_named_with_line_and_what_is_allowed(tmp_path: Path, more: str, said: str) -> None:
    assert any(said in problem for problem in problems_of(tmp_path, f"{HEAD}{more}\n"))


@pytest.mark.parametrize(
    ("requirements", "said"),
    [
        ("[]", "requirements: got a list, must have at least 1 item"),
        ("[{id: A b, text: t, check: {kind: file, path: x}}]", 'requirements[0].id: got "A b", must match pattern'),
        ("[{id: a, check: {kind: file, path: x}}]", "requirements[0].text: missing; needed: What must hold, in words."),
        ("[{id: a, text: t, check: {kind: file, path: x}, before: no}]", "requirements[0].before: YAML reads no as"),
        ("[{id: a, text: t, mandatory: false, check: {kind: file, path: x}}]", "at least one requirement must be"),
        (
            "[{id: a, text: t, check: {kind: file, path: x}}, {id: a, text: t, check: {kind: file, path: y}}]",
            "requirement ids must differ; used twice: a",
        ),
    ],
)
def test_requirements_that_cannot_work_are_refused(tmp_path: Path, requirements: str, said: str) -> None:
    problems = problems_of(tmp_path, f"name: n\ngoal: g\nrequirements: {requirements}\n")
    assert any(said in problem for problem in problems), problems


def test_all_problems_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "name: n\ngoal: yes\nrequirements: 5\nbounds: {max_plan_versions: 0}\nworkspace: {seed: gone}\nx: y\n"
    problems = problems_of(tmp_path, text)
    assert [int(problem.split(":")[1]) for problem in problems] == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("name", "said"), [("missing.yaml", "missing.yaml:1: no such file"), (".", ":1: a folder; name the scenario file")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(tmp_path / name)
    assert said in str(caught.value)


def test_a_wrong_script_is_named_with_its_own_file_and_line(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("replies:\n  - node: plan\n    reply: x\n  - node: dance\n    reply: y\n")
    with pytest.raises(ScenarioError) as caught:
        load_rehearsal(script)
    [problem] = caught.value.problems
    assert (problem.file, problem.line, problem.field) == (str(script), 4, "replies[1].node")


def test_what_follows_only_later_is_told_at_once_too(tmp_path: Path) -> None:
    models = "models: {default: rehearsd, judge: {model: x, api_base: 'http://x'}}\n"
    said = problems_of(tmp_path, f"{HEAD}colour: red\n{models}")
    assert [problem.split(": ")[1] for problem in said] == ["colour", "models.default"]
    assert "unknown model rehearsd; did you mean rehearsed?" in said[1]


def test_a_rehearsed_tier_without_a_script_is_told_at_its_line(tmp_path: Path) -> None:
    (said,) = problems_of(tmp_path, HEAD + "models: {default: rehearsed}\n")
    assert said.endswith("task.yaml:7: models: a tier is rehearsed, so rehearsal must name the script")


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (
            "{tool: runn, arguments: {command: x}}",
            "tool: there is no tool runn; did you mean run?; the tools are ",
        ),
        ("{tool: run, arguments: {cmd: x}}", "arguments.cmd: unknown field"),
        ("{tool: read_file, arguments: {path: a, start_line: 0}}", "arguments.start_line: got 0, must be greater"),
    ],
)
def test_a_rehearsed_action_that_no_tool_takes_is_told(tmp_path: Path, action: str, said: str) -> None:
    path = tmp_path / "script.yaml"
    reply = "{{thought: t, more: false, actions: [{{tool: run, arguments: {{command: 'echo {{{{x}}}}'}}}}, {}]}}"
    path.write_text(f"replies:\n  - node: propose_action\n    when: ['(?P<x>a)']\n    reply: {reply.format(action)}\n")
    with pytest.raises(ScenarioError) as raised:
        load_rehearsal(path)
    assert any(f"{path}:4: replies[0].reply.actions[1].{said}" in str(item) for item in raised.value.problems)


def test_a_pretended_price_is_written_in_dollars_like_every_other(tmp_path: Path) -> None:
    path = tmp_path / "script.yaml"
    path.write_text("price: {input_microusd_per_mtok: 5, output_usd_per_mtok: 7}\n" + SCRIPT % "true")
    with pytest.raises(ScenarioError) as raised:
        load_rehearsal(path)
    (unknown, missing) = map(str, raised.value.problems)
    assert "price.input_microusd_per_mtok: unknown field; did you mean input_usd_per_mtok" in unknown + missing
    assert "price.input_usd_per_mtok: missing" in unknown + missing


def test_the_published_schema_accepts_what_the_loader_accepts_and_refuses_unknown_fields() -> None:
    validator = jsonschema.Draft202012Validator(schema())
    for path in SCENARIOS.glob("*.yaml"):
        if not path.name.endswith(".rehearsal.yaml"):
            validator.validate(yaml.safe_load(path.read_text()))
    good = yaml.safe_load(HEAD)
    validator.validate(good)
    assert not validator.is_valid({**good, "colour": "red"})
    assert not validator.is_valid({**good, "bounds": {"max_plan_versions": 0}})
