"""A task is frozen with everything resolved, or refused with everything that is wrong, before anything starts."""

import base64
import importlib.util
import socket
from pathlib import Path

import pytest

from client.freezing import freeze
from client.scenarios import ScenarioError, load
from schemas.models import Tier
from schemas.pricing import Price
from schemas.rehearsal import StoredRehearsal
from schemas.scenario import ModelEntry
from schemas.task import TaskSpec
from stores.artifacts import ArtifactStore
from stores.seeds import unpack_seed
from stores.settings import Settings, read_settings
from tests.client.scenario_files import HEAD, SCRIPT, rehearsed_scenario, write_scenario

KEYS = {"OPENAI_API_KEY": "k"}
needs_litellm = pytest.mark.skipif(
    importlib.util.find_spec("litellm") is None, reason="an optional part: the demo's install is without it"
)


def settings_for(folder: Path, toml: str = "") -> Settings:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(toml)
    return read_settings({"home": home}, {}, folder)


def frozen(
    folder: Path, more: str = "", toml: str = "", override: ModelEntry | None = None, keys: dict[str, str] | None = None
) -> TaskSpec:
    text = f"{HEAD}workspace: {{kind: local}}\n{more}"
    path = write_scenario(folder, text, SCRIPT % "true")
    settings = settings_for(folder, toml)
    return freeze(load(path), settings, ArtifactStore(settings.artifacts_dir), override, keys or {})


def refused(folder: Path, more: str = "", **arguments: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        frozen(folder, more, **arguments)  # type: ignore[arg-type]  # only text is given here
    return str(caught.value).replace(f"{folder}/", "")


REHEARSED = "models: {default: rehearsed}\nrehearsal: script.yaml\n"


def test_a_rehearsed_task_carries_its_script_and_counts_its_pretended_price(tmp_path: Path) -> None:
    script = "price: {input_usd_per_mtok: 0.000005, output_usd_per_mtok: 7}\n" + SCRIPT % "true"
    path = rehearsed_scenario(tmp_path, "true", "workspace: {kind: local}\nlimits: {usd: 1}\n")
    (tmp_path / "script.yaml").write_text(script)
    settings = settings_for(tmp_path)
    artifacts = ArtifactStore(settings.artifacts_dir)
    spec = freeze(load(path), settings, artifacts, None, {})
    choice = spec.models[Tier.PLANNER]
    assert choice.rehearsed
    assert choice.price == Price(input_microusd_per_mtok=5, output_microusd_per_mtok=7_000_000)
    assert choice.rehearsal is not None
    stored = StoredRehearsal.model_validate_json(artifacts.get_text(choice.rehearsal))
    assert stored.replies
    assert stored.file == str(tmp_path / "script.yaml")
    assert spec.limits.microusd == 1_000_000


def test_the_queue_names_prefix_kind_and_this_host(tmp_path: Path) -> None:
    assert frozen(tmp_path, REHEARSED).workspace.queue == f"surefoot.ws.local.{socket.gethostname()}"


def test_a_seed_folder_is_packed_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "seed").mkdir()
    (tmp_path / "seed" / "a.txt").write_text("a")
    path = rehearsed_scenario(tmp_path, "true", "workspace: {kind: local, seed: seed}\n")
    settings = settings_for(tmp_path)
    artifacts = ArtifactStore(settings.artifacts_dir)
    seed = freeze(load(path), settings, artifacts, None, {}).workspace.seed
    assert seed is not None
    (tmp_path / "unpacked").mkdir()
    unpack_seed(artifacts.get_bytes(seed), tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / "a.txt").read_text() == "a"


def test_a_seed_that_leads_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "seed").mkdir()
    (tmp_path / "seed" / "link").symlink_to("/etc/passwd")
    path = rehearsed_scenario(tmp_path, "true", "workspace: {kind: local, seed: seed}\n")
    settings = settings_for(tmp_path)
    with pytest.raises(ScenarioError, match=r"workspace\.seed: .* leads out of"):
        freeze(load(path), settings, ArtifactStore(settings.artifacts_dir), None, {})


@needs_litellm
def test_scenario_goes_before_settings_and_a_tier_before_the_default(tmp_path: Path) -> None:
    toml = "[tiers.judge]\nmodel = 'openai/gpt-4.1'\n[tiers.planner]\nmodel = 'openai/o3'\n"
    more = f"{REHEARSED}".replace("{default: rehearsed}", "{planner: openai/gpt-4.1-mini, executor: rehearsed}")
    toml += "[tiers.summarizer]\nmodel = 'rehearsed'\n"
    models = frozen(tmp_path, more, toml, keys=KEYS).models
    assert {tier.value: choice.model for tier, choice in models.items()} == {
        "planner": "openai/gpt-4.1-mini",
        "executor": "rehearsed",
        "judge": "openai/gpt-4.1",
        "summarizer": "rehearsed",
    }
    assert models[Tier.PLANNER].api_key_env == "OPENAI_API_KEY"
    assert models[Tier.PLANNER].price is not None


@needs_litellm
def test_the_command_line_answers_every_tier(tmp_path: Path) -> None:
    override = ModelEntry(model="openai/own", api_base="http://localhost:9")
    models = frozen(tmp_path, REHEARSED, override=override).models
    assert {choice.model for choice in models.values()} == {"openai/own"}
    assert models[Tier.JUDGE].api_base == "http://localhost:9"
    assert models[Tier.JUDGE].price is None


def test_a_tier_that_nobody_names_is_refused_with_both_places_to_name_it(tmp_path: Path) -> None:
    said = refused(tmp_path)
    assert "models: no model for the tier planner; set models.default or models.planner here" in said
    assert "SUREFOOT_TIERS__PLANNER__MODEL" in said


def test_a_rehearsed_tier_of_the_settings_needs_a_script(tmp_path: Path) -> None:
    tiers = "".join(f"[tiers.{tier.value}]\nmodel = 'rehearsed'\n" for tier in Tier)
    assert "the scenario has no script; name it as `rehearsal`" in refused(tmp_path, toml=tiers)


@needs_litellm
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            "models: {default: openai/gpt-4.1-mni}",
            "task.yaml:8: models.default: unknown model openai/gpt-4.1-mni; did you mean",
        ),
        ("models: {default: openai/gpt-4.1}", "needs a key; set the environment variable OPENAI_API_KEY"),
        (
            "models:\n  default: {model: openai/gpt-4.1, api_key_env: MY_KEY}",
            "task.yaml:9: models.default: openai/gpt-4.1 needs a key; set the environment variable MY_KEY",
        ),
        (
            "models: {default: {model: openai/own, api_base: 'http://x'}}\nlimits: {usd: 1}",
            "limits.usd is set and the price of openai/own is unknown; set models.default.price",
        ),
        (
            "models: {default: {model: openai/gpt-4.1, max_output_tokens: 150000}}",
            "max_output_tokens 150,000 is more than openai/gpt-4.1 answers; allowed:",
        ),
    ],
)
def test_a_model_that_cannot_answer_is_refused_with_what_to_set(tmp_path: Path, more: str, said: str) -> None:
    assert said in refused(tmp_path, more)


@needs_litellm
def test_for_a_server_of_ones_own_the_key_is_its_workers_matter(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, HEAD + "workspace: {kind: local}\nmodels: {default: openai/gpt-4.1}\n")
    artifacts = ArtifactStore(tmp_path / "artifacts")
    spec = freeze(load(path), settings_for(tmp_path), artifacts, None, {"TEMPORAL_ADDRESS": "temporal.example:7233"})
    assert spec.models[Tier.PLANNER].api_key_env == "OPENAI_API_KEY"


@needs_litellm
def test_a_problem_of_the_default_is_told_once_not_for_every_tier(tmp_path: Path) -> None:
    assert refused(tmp_path, "models: {default: openai/gpt-4.1-mni}").count("unknown model") == 1
    own = "models: {default: {model: openai/own, api_base: 'http://x'}}\nlimits: {usd: 1}"
    assert refused(tmp_path, own).count("price of openai/own is unknown") == 1


def test_a_wrong_script_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    path = rehearsed_scenario(tmp_path, "true")
    (tmp_path / "script.yaml").write_text("replies: []\n")
    settings = settings_for(tmp_path)
    with pytest.raises(ScenarioError, match=r"script\.yaml:1: replies"):
        freeze(load(path), settings, ArtifactStore(settings.artifacts_dir), None, {})
    assert not settings.artifacts_dir.exists()


def test_names_of_secrets_go_into_the_task_and_bad_ones_are_refused(tmp_path: Path) -> None:
    assert frozen(tmp_path, f"{REHEARSED}secrets: [A_TOKEN, B_2]\n").secrets == ("A_TOKEN", "B_2")
    for wrong in ("[token]", "[A, A]", "[LD_PRELOAD]", "{A: value}"):
        assert "task.yaml:10: secrets" in refused(tmp_path, f"{REHEARSED}secrets: {wrong}\n")


def test_a_seed_that_holds_a_secret_is_refused_with_the_file_named_and_is_not_stored(tmp_path: Path) -> None:
    value, key = "kx9/Tq+7=vB2mN", "sk-0123456789abcdef"
    more = f"{REHEARSED}secrets: [A_TOKEN, ELSEWHERE]\n"
    seeded = "workspace: {kind: local, seed: seed}"
    (tmp_path / "seed" / "sub").mkdir(parents=True)
    (tmp_path / "seed" / ".env").write_text(f"TOKEN={value}\n")
    (tmp_path / "seed" / "sub" / "b64").write_bytes(base64.encodebytes(b"x" * 50 + key.encode()))
    (tmp_path / "seed" / "sub" / value.encode().hex()).touch()
    path = write_scenario(tmp_path, f"{HEAD}{seeded}\n{more}", SCRIPT % "true")
    settings = settings_for(tmp_path, '[secrets.A_TOKEN]\nenv = "OUTSIDE"\n')

    def freeze_with(environ: dict[str, str]) -> TaskSpec:
        return freeze(load(path), settings, ArtifactStore(settings.artifacts_dir), None, environ)

    with pytest.raises(ScenarioError) as caught:
        freeze_with({"OUTSIDE": value, "MY_KEY": key})
    first, second, third = str(caught.value).splitlines()
    assert "task.yaml:7: workspace.seed: .env holds the value of secret A_TOKEN, and a seed is stored as it is" in first
    assert "sub/‹secret:A_TOKEN› holds the value of secret A_TOKEN" in second
    assert "sub/b64 holds the value of secret MY_KEY" in third
    assert not list(settings.artifacts_dir.rglob("*")) or value.encode() not in _stored(settings)
    assert freeze_with({}).workspace.seed is not None, "who cannot resolve it cannot see it"


def _stored(settings: Settings) -> bytes:
    return b"".join(path.read_bytes() for path in settings.artifacts_dir.rglob("*") if path.is_file())
