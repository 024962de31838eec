"""Settings come from four places in a fixed order, and a mistake is told with its place."""

import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from schemas.models import Tier
from schemas.secrets import SecretSource
from stores.database import shown
from stores.settings import LogLevel, SettingsError, TelemetrySettings, load_settings, read_settings
from tests.stores.intents import ROOT


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_anything_the_home_is_the_users_data_folder(tmp_path: Path) -> None:
    settings = read_settings({}, {}, tmp_path)
    assert settings.home.is_absolute()
    assert settings.home.name == "surefoot"
    assert settings.database_url == f"sqlite:///{settings.home}/surefoot.db"
    assert settings.queue_prefix == "surefoot"
    assert settings.tiers == {}
    assert settings.artifacts_dir == settings.home / "artifacts"
    assert load_settings(home=tmp_path, log_level=None).home == tmp_path


def test_flags_go_before_variables_before_the_project_before_the_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write(home / "config.toml", 'queue_prefix = "home"\nlog_level = "error"\n[tiers.judge]\nmodel = "home/m"\n')
    flags: dict[str, Any] = {"home": str(home)}
    environ: dict[str, str] = {}

    def prefix() -> str:
        return read_settings(flags, environ, tmp_path).queue_prefix

    assert prefix() == "home"
    write(tmp_path / "surefoot.toml", 'queue_prefix = "project"')
    assert prefix() == "project"
    environ["SUREFOOT_QUEUE_PREFIX"] = "variable"
    assert prefix() == "variable"
    flags["queue_prefix"] = "flag"
    assert prefix() == "flag"
    environ["SUREFOOT_LOG_LEVEL"] = ""
    settings = read_settings(flags, environ, tmp_path)
    assert settings.log_level is LogLevel.ERROR, "an empty variable counts as not set"
    assert settings.tiers[Tier.JUDGE].model == "home/m"


def test_a_postgresql_url_may_hold_a_password_which_is_not_in_the_printed_settings(tmp_path: Path) -> None:
    for url in (
        "postgresql://ann:se%40cret@db.example:5433/surefoot?sslmode=verify-full",
        "postgresql+psycopg://ann@/surefoot?host=/run/postgresql",
        "postgresql:///surefoot",
    ):
        settings = read_settings({}, {"SUREFOOT_DATABASE_URL": url}, tmp_path)
        assert settings.database_url == url
        assert "se%40cret" not in repr(settings)


@pytest.mark.parametrize("host", ["h:abc", "[::1", "h:1,h:2", "::1", "h:65536", "h:-1"])
def test_an_address_that_no_driver_understands_is_refused_with_what_is_allowed(tmp_path: Path, host: str) -> None:
    with pytest.raises(SettingsError, match=r"^SUREFOOT_DATABASE_URL: must be .*one host .*brackets.*port up to"):
        read_settings({}, {"SUREFOOT_DATABASE_URL": f"postgresql://ann@{host}/surefoot"}, tmp_path)


@pytest.mark.parametrize("url", ["postgresql://ann@[::1]:5433/s", "postgresql://ann@/s?host=a,b&port=1,2"])
def test_an_ipv6_address_and_several_hosts_have_their_own_spelling(tmp_path: Path, url: str) -> None:
    assert read_settings({}, {"SUREFOOT_DATABASE_URL": url}, tmp_path).database_url == url
    assert shown(url)


@pytest.mark.parametrize("name", ["x#1", "x?1", "x%41"])
def test_a_home_that_sqlite_would_read_as_another_path_is_refused(tmp_path: Path, name: str) -> None:
    """The server of /data/x#1 kept its file under /data/x, and so did the server of /data/x#2."""
    with pytest.raises(SettingsError, match=r"^SUREFOOT_HOME: .*choose a folder whose path holds none of % \? #"):
        read_settings({}, {"SUREFOOT_HOME": name}, tmp_path)
    (tmp_path / name).mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / name)
    with pytest.raises(SettingsError, match="choose a folder"):
        read_settings({"home": tmp_path / "linked"}, {}, tmp_path)


def test_the_home_may_be_named_by_the_project_relative_to_it(tmp_path: Path) -> None:
    write(tmp_path / "surefoot.toml", 'home = "data"')
    assert read_settings({}, {}, tmp_path).home == tmp_path / "data"
    assert read_settings({}, {"SUREFOOT_HOME": "/elsewhere"}, tmp_path).home == Path("/elsewhere")
    assert read_settings({}, {"SUREFOOT_HOME": "~/x"}, tmp_path).home == Path.home() / "x"


def test_variables_reach_into_tiers(tmp_path: Path) -> None:
    environ = {
        "SUREFOOT_TIERS__JUDGE__MODEL": "openai/small",
        "SUREFOOT_TIERS__JUDGE__PRICE__INPUT_USD_PER_MTOK": "0.25",
        "SUREFOOT_TIERS__JUDGE__PRICE__OUTPUT_USD_PER_MTOK": "2",
        "SUREFOOT_TIERS__JUDGE__STRUCTURED_OUTPUT": "false",
        "SUREFOOT_TIERS__JUDGE__TIMEOUT_SECONDS": "30",
    }
    judge = read_settings({}, environ, tmp_path).tiers[Tier.JUDGE]
    assert judge.price is not None
    assert judge.price.input_usd_per_mtok == Decimal("0.25")
    assert (judge.structured_output, judge.timeout_seconds) == (False, 30)


def test_a_build_is_a_text_whatever_it_looks_like(tmp_path: Path) -> None:
    for build_id in ("1.10", "0012345", "true", "1b83c73"):
        environ = {"SUREFOOT_DEPLOYMENT__NAME": "surefoot", "SUREFOOT_DEPLOYMENT__BUILD_ID": build_id}
        deployment = read_settings({}, environ, tmp_path).deployment
        assert deployment is not None
        assert (deployment.name, deployment.build_id) == ("surefoot", build_id)


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"SUREFOOT_DEPLOYMENT__NAME": "surefoot"}, "SUREFOOT_DEPLOYMENT__BUILD_ID: Field required"),
        (
            {"SUREFOOT_DEPLOYMENT__NAME": "sure.foot", "SUREFOOT_DEPLOYMENT__BUILD_ID": "1"},
            "SUREFOOT_DEPLOYMENT__NAME: ",
        ),
        ({"SUREFOOT_HEALTH__PORT": "1"}, "SUREFOOT_HEALTH__PORT: unknown; allowed here: address"),
        ({"SUREFOOT_HEALTH__ADDRESS": "8080"}, "SUREFOOT_HEALTH__ADDRESS: "),
    ],
)
def test_a_mistake_in_deployment_or_health_names_its_variable(
    tmp_path: Path, environ: dict[str, str], says: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings({}, environ, tmp_path)
    assert says in str(caught.value)


def test_another_model_does_not_inherit_the_price_of_the_one_it_replaces(tmp_path: Path) -> None:
    price = "price = {input_usd_per_mtok = 1.5, output_usd_per_mtok = 3}"
    write(tmp_path / "surefoot.toml", f'[tiers.judge]\nmodel = "cheap"\napi_base = "http://here"\n{price}\n')
    replaced = read_settings({}, {"SUREFOOT_TIERS__JUDGE__MODEL": "dear"}, tmp_path).tiers[Tier.JUDGE]
    assert (replaced.model, replaced.price, replaced.api_base) == ("dear", None, None)
    tuned = read_settings({}, {"SUREFOOT_TIERS__JUDGE__TIMEOUT_SECONDS": "9"}, tmp_path).tiers[Tier.JUDGE]
    assert tuned.model == "cheap"
    assert tuned.price is not None
    assert (tuned.timeout_seconds, tuned.api_base) == (9, "http://here")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("colour = 1", "{file}: colour: unknown; allowed here: database_url, deployment, health, home, log_level"),
        (
            '[tiers.judge]\nmodel = "m"\napi_key = "sk-1"',
            "{file}: tiers.judge.api_key: unknown; allowed here: api_base",
        ),
        ('[tiers.jugde]\nmodel = "m"', "{file}: tiers.jugde: Input should be 'planner', 'executor'"),
        ("[tiers.judge]\ntimeout_seconds = 3", "{file}: tiers.judge.model: Field required"),
        ('[tiers.judge]\nmodel = "m"\ntimeout_seconds = "3"', "{file}: tiers.judge.timeout_seconds: Input should be a"),
        (
            '[tiers.judge]\nmodel = "m"\nprice = {usd = 1}',
            "{file}: tiers.judge.price.usd: unknown; allowed here: cache",
        ),
        (
            'database_url = "mysql://u:secret@h/d"',
            "{file}: database_url: must be sqlite:////absolute/path or",
        ),
        ('database_url = "postgresql://u:sec@ret@h/d?x=secret"', "{file}: database_url: must be sqlite:"),
        ('database_url = "postgresql://u@h/d?password=secret"', "{file}: database_url: must be sqlite:"),
        ("queue_prefix = true", "{file}: queue_prefix: Input should be a valid string"),
        ("home = 3", "{file}: home: must be the path of a folder"),
        ("queue_prefix =", "{file}: cannot be read: Invalid value (at end of document)"),
    ],
)
def test_a_mistake_in_a_file_names_file_and_field_and_shows_no_value(tmp_path: Path, text: str, says: str) -> None:
    write(tmp_path / "surefoot.toml", text)
    with pytest.raises(SettingsError) as caught:
        read_settings({}, {}, tmp_path)
    assert says.format(file=tmp_path / "surefoot.toml") in str(caught.value)
    assert "sk-1" not in str(caught.value)
    assert "u:secret" not in str(caught.value)


def test_a_mistake_in_a_variable_or_flag_names_it(tmp_path: Path) -> None:
    write(tmp_path / "surefoot.toml", 'log_level = "info"')
    with pytest.raises(SettingsError, match=r"^SUREFOOT_LOG_LEVEL: Input should be 'debug'"):
        read_settings({}, {"SUREFOOT_LOG_LEVEL": "loud"}, tmp_path)
    with pytest.raises(SettingsError, match=r"^command line: log_level: Input should be 'debug'"):
        read_settings({"log_level": "loud"}, {}, tmp_path)
    environ = {"SUREFOOT_TIERS__JUDGE__MODEL": "m", "SUREFOOT_TIERS__JUDGE__COLOUR": "x"}
    with pytest.raises(SettingsError, match=r"^SUREFOOT_TIERS__JUDGE__COLOUR: unknown"):
        read_settings({}, environ, tmp_path)
    with pytest.raises(SettingsError, match=r"^SUREFOOT_LOG_LEVEL__X: log_level has a value of its own"):
        read_settings({}, {"SUREFOOT_LOG_LEVEL": "info", "SUREFOOT_LOG_LEVEL__X": "1"}, tmp_path)


def test_a_mistake_in_the_homes_file_is_told_from_there(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write(home / "config.toml", "colour = 1")
    with pytest.raises(SettingsError, match=r"home/config\.toml: colour: unknown"):
        read_settings({"home": home}, {}, tmp_path)
    write(home / "config.toml", 'home = "x"')
    with pytest.raises(SettingsError, match=r"config\.toml: home: cannot stand in the home's own file"):
        read_settings({"home": home}, {}, tmp_path)


def test_secrets_stand_in_the_homes_file_or_in_variables(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write(home / "config.toml", '[secrets.A_TOKEN]\nfile = "/run/a"\n[secrets.B]\ncommand = ["pass", "show", "b"]\n')
    environ = {"SUREFOOT_SECRETS__A_TOKEN__ENV": "A", "SUREFOOT_SECRETS__B__TIMEOUT_SECONDS": "3"}
    secrets = read_settings({"home": home}, environ, tmp_path).secrets
    assert secrets["A_TOKEN"] == SecretSource(env="A"), "another source takes nothing over from the one below"
    assert secrets["B"] == SecretSource(command=("pass", "show", "b"), timeout_seconds=3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[secrets.A]\nenv = "A"\nfile = "/a"', "secrets.A: Value error, needs exactly one of env, file and command"),
        ("[secrets.A]\ntimeout_seconds = 3", "secrets.A: Value error, needs exactly one of env, file and command"),
        (
            '[secrets.A]\nvalue = "hunter2hunter2"',
            "secrets.A.value: unknown; allowed here: command, env, file, timeout",
        ),
        ('[secrets.a-b]\nenv = "A"', "secrets.a-b: String should match pattern"),
        ('[secrets.LD_PRELOAD]\nenv = "A"', "secrets.LD_PRELOAD: Value error, LD_PRELOAD means something to programs"),
        ('[secrets.A]\nfile = "relative"', "secrets.A.file: String should match pattern"),
        ('[secrets.A]\ncommand = "pass show a"', "secrets.A.command: Input should be a valid array"),
    ],
)
def test_a_mistake_in_a_secret_is_told_without_a_value(tmp_path: Path, text: str, says: str) -> None:
    write(tmp_path / "home" / "config.toml", text)
    with pytest.raises(SettingsError) as caught:
        read_settings({"home": tmp_path / "home"}, {}, tmp_path)
    assert f"config.toml: {says}" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_secrets_in_the_projects_file_are_refused_since_no_worker_would_read_them(tmp_path: Path) -> None:
    write(tmp_path / "surefoot.toml", '[secrets.A]\nenv = "A"')
    with pytest.raises(
        SettingsError, match=r"surefoot\.toml: secrets: cannot stand here: a worker .* move them to /h/"
    ):
        read_settings({"home": "/h"}, {}, tmp_path)


def test_reading_settings_imports_neither_database_nor_temporal() -> None:
    code = (
        "import sys, stores.settings; sys.exit(any(m in sys.modules for m in ('sqlalchemy', 'alembic', 'temporalio')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False).returncode == 0


def test_nothing_is_traced_or_shown_unless_the_settings_say_where(tmp_path: Path) -> None:
    assert read_settings({}, {}, tmp_path).telemetry == TelemetrySettings()
    assert TelemetrySettings().otlp_endpoint is TelemetrySettings().prometheus is None
    write(tmp_path / "surefoot.toml", '[telemetry]\nprometheus = "127.0.0.1:9464"\ncontent = true\n')
    environ = {"SUREFOOT_TELEMETRY__OTLP_ENDPOINT": "http://collector:4318", "SUREFOOT_TELEMETRY__CONTENT": "false"}
    telemetry = read_settings({}, environ, tmp_path).telemetry
    assert telemetry.otlp_endpoint == "http://collector:4318"
    assert telemetry.prometheus == "127.0.0.1:9464"
    assert telemetry.content is False


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("OTLP_ENDPOINT", "collector:4318", "must be an address, as http://127.0.0.1:4318"),
        ("PROMETHEUS", "localhost:9464", "must be an address, as 127.0.0.1:9464"),
        ("CONTENT", "yes", "should be a valid boolean"),
        ("CONTENTS", "true", "unknown; allowed here: content, otlp_endpoint, prometheus, service_name"),
    ],
)
def test_a_telemetry_setting_that_cannot_be_used_is_told(tmp_path: Path, name: str, value: str, said: str) -> None:
    with pytest.raises(SettingsError, match=f"SUREFOOT_TELEMETRY__{name}: .*{said}"):
        read_settings({}, {f"SUREFOOT_TELEMETRY__{name}": value}, tmp_path)
