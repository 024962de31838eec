"""A secret is resolved at the moment of use, from where the worker's settings say, or refused with what to do."""

import os
import sys
import time
from pathlib import Path

import pytest

from schemas.errors import SecretUnresolved
from schemas.secrets import SecretSource
from stores.masking import label
from stores.secrets import KEPT_CHARACTERS, KEPT_VALUES, Secrets, worker_secrets
from stores.settings import read_settings
from tests.support.processes import eventually, processes_with

VALUE = "kx9-Tq7vB2mNzz01"


def of(source: SecretSource, environ: dict[str, str] | None = None) -> Secrets:
    return Secrets({"TOKEN": source}, environ or {})


def printing(code: str, timeout_seconds: int = 10) -> SecretSource:
    return SecretSource(command=(sys.executable, "-c", code), timeout_seconds=timeout_seconds)


def refusal(secrets: Secrets) -> str:
    with pytest.raises(SecretUnresolved) as caught:
        secrets.resolve(["TOKEN"])
    assert str(caught.value).startswith("secret TOKEN: ")
    assert caught.value.__cause__ is None
    return str(caught.value)


def test_a_value_comes_from_a_variable_a_file_or_a_command(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{VALUE}\r\n")
    for source in (
        SecretSource(env="VARIABLE"),
        SecretSource(file=str(tmp_path / "token")),
        printing(f"print('{VALUE}')"),
    ):
        secrets = of(source, {"VARIABLE": VALUE})
        assert secrets.mask(VALUE) == VALUE
        assert secrets.resolve(["TOKEN"]) == {"TOKEN": VALUE}
        assert secrets.mask(VALUE) == label("TOKEN")


def test_a_value_that_rotates_is_read_anew_and_the_old_ones_stay_masked(tmp_path: Path) -> None:
    file = tmp_path / "token"
    secrets = of(SecretSource(file=str(file)))
    values = [f"{VALUE}-{number}-" for number in range(50)]
    for value in values:
        file.write_text(value)
        assert secrets.resolve(["TOKEN"]) == {"TOKEN": value}
    for value in values:
        assert secrets.mask(value) == label("TOKEN")


def test_the_oldest_values_are_forgotten_beyond_a_bound_which_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    secrets = Secrets()
    secrets.learn("OTHER", f"other-{VALUE}")
    values = [f"{VALUE}-{number}-" for number in range(KEPT_VALUES + 1)]
    for value in values[:-1]:
        secrets.learn("TOKEN", value)
    assert secrets.mask(values[0]) == label("TOKEN")
    assert caplog.messages == []
    secrets.learn("TOKEN", values[-1])
    assert caplog.messages == ["secret TOKEN rotates: its 100 oldest values are forgotten, and masked no longer"]
    assert secrets.mask(" ".join(values[:100])) == " ".join(values[:100]), "memory has a bound"
    assert [secrets.mask(value) for value in values[100:]] == [label("TOKEN")] * (KEPT_VALUES - 99)
    assert secrets.mask(f"other-{VALUE}") == label("OTHER"), "which rotates not"


def test_fewer_long_values_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    secrets = Secrets()
    values = [f"{number:05}{VALUE * 200}" for number in range(KEPT_CHARACTERS // 3200)]
    for value in values:
        secrets.learn("TOKEN", value)
    assert "oldest values are forgotten" in caplog.messages[0]
    assert secrets.mask(values[-1]) == label("TOKEN")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (
            "7%",
            "its value, from the environment variable VARIABLE, has 2 characters (blanks do not count); fewer than 8",
        ),
        ("short-7", "has 7 characters"),
        ("", "is empty; put the value there"),
        ("          ", "is empty"),
        ("nul\x00inside", "holds a NUL character"),
        ("x" * 40_000, "has more than 32,768 bytes"),
        ("a b c d\te f\n\n\n", "has 6 characters (blanks do not count); fewer than 8"),
        ("secret:TOKEN", "is part of the name of a secret"),
        ("PASSWORD", "is part of the name of a secret"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_the_reason_and_not_told(value: str, says: str) -> None:
    said = refusal(of(SecretSource(env="VARIABLE"), {"VARIABLE": value}))
    assert says in said
    assert not value.strip() or value not in said.replace("secret TOKEN:", "")


def test_what_does_not_resolve_says_where_and_what_to_do(tmp_path: Path) -> None:
    assert "VARIABLE is not set in this worker; set it and restart the worker" in refusal(
        of(SecretSource(env="VARIABLE"))
    )
    missing = refusal(of(SecretSource(file=str(tmp_path / "none"))))
    assert f"{tmp_path}/none cannot be read: No such file or directory; put the value there" in missing
    (tmp_path / "binary").write_bytes(b"\xff" * 20)
    assert "is no UTF-8 text" in refusal(of(SecretSource(file=str(tmp_path / "binary"))))
    assert "`/none/such` cannot be run: No such file" in refusal(of(SecretSource(command=("/none/such",))))
    failing = refusal(of(printing(f"import sys; print('{VALUE}'); sys.exit('{VALUE}')")))
    assert "ended with code 1; run it by hand where the worker runs" in failing
    assert VALUE not in failing


def test_a_pipe_in_a_files_place_is_refused_at_once(tmp_path: Path) -> None:
    """Whoever waited for its writer would hang: `doctor`, and a worker's start."""
    os.mkfifo(tmp_path / "pipe")
    source = SecretSource(file=str(tmp_path / "pipe"))
    assert "it is no file, but a folder, pipe or device; put the value there" in refusal(of(source))


def test_a_name_that_is_not_configured_says_which_are() -> None:
    with pytest.raises(SecretUnresolved, match=r"none of that name \(they have TOKEN\); add \[secrets.OTHER\]"):
        of(SecretSource(env="VARIABLE")).resolve(["OTHER"])
    with pytest.raises(SecretUnresolved, match=r"they have none at all"):
        Secrets().resolve(["OTHER"])


def test_a_command_that_hangs_is_ended_with_all_that_it_has_started() -> None:
    token = "token-of-a-hanging-secret"
    code = f"import subprocess; subprocess.run(['sh', '-c', 'sleep 600; : {token}'])"
    begun = time.monotonic()
    assert "did not end within 1 s" in refusal(of(printing(code, timeout_seconds=1)))
    assert time.monotonic() - begun < 300
    assert eventually(lambda: not processes_with(token))


def test_a_worker_knows_all_that_resolves_and_the_keys_in_its_environment(tmp_path: Path) -> None:
    key, short = "sk-0123456789abcdef", "disabled"
    (tmp_path / "key-file-of-someone").touch()
    environ = {
        "VARIABLE": VALUE,
        "EXAMPLE_API_KEY": key,
        "TRACE_TOKEN": short,
        "PATH": "/usr/bin:/usr/sbin:/bin",
        "MY_KEY": f"{key}-1",
        "client_secret": f"{key}-2",
        "SSH_KEY": f"{tmp_path}/key-file-of-someone",
    }
    sources = {"TOKEN": SecretSource(env="VARIABLE"), "GONE": SecretSource(file=str(tmp_path / "gone"))}
    secrets = Secrets(sources, environ)
    problems = secrets.learn_all()
    assert list(problems) == ["GONE"]
    assert secrets.mask(f"{VALUE} {key} {short} {environ['PATH']}") == (
        f"{label('TOKEN')} {label('EXAMPLE_API_KEY')} {short} {environ['PATH']}"
    )
    assert secrets.mask(f"{key}-1 {key}-2") == f"{label('MY_KEY')} {label('client_secret')}"
    assert secrets.mask(environ["SSH_KEY"]) == environ["SSH_KEY"], "a path is no secret"
    assert secrets.resolve(["TOKEN"]) == {"TOKEN": VALUE}, "one that does not resolve matters to no other"


def test_settings_give_a_worker_its_secrets(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text('[secrets.TOKEN]\nenv = "VARIABLE"\n')
    secrets = worker_secrets(read_settings({"home": home}, {}, tmp_path), {"VARIABLE": VALUE})
    assert secrets.names == ("TOKEN",)
    assert secrets.resolve(["TOKEN"]) == {"TOKEN": VALUE}


def database(tmp_path: Path, url: str, environ: dict[str, str]) -> Secrets:
    settings = read_settings({"home": tmp_path / "home", "database_url": url}, {}, tmp_path)
    return worker_secrets(settings, {"HOME": str(tmp_path), **environ})


def test_the_password_of_the_database_is_known_wherever_its_driver_finds_it(tmp_path: Path) -> None:
    masked = label("DATABASE_PASSWORD")
    url = "postgresql://surefoot@db/surefoot"
    assert database(tmp_path, "postgresql://surefoot:Kx9%2FTq7vB@db/s", {}).mask("Kx9/Tq7vB") == masked
    assert database(tmp_path, url, {"PGPASSWORD": VALUE}).mask(VALUE) == masked
    lines = f"# {VALUE}0\n*:*:*:surefoot:a\\:b\\\\{VALUE}\ndb:5432:*:other:pa55-{VALUE}1\nno line\n"
    for name, environ, query in (
        (".pgpass", {}, ""),
        ("passwords", {"PGPASSFILE": f"{tmp_path}/passwords"}, ""),
        ("said", {}, f"?passfile={tmp_path}/said"),
    ):
        (tmp_path / name).write_text(lines)
        secrets = database(tmp_path, url + query, environ)
        assert secrets.mask(f"a:b\\{VALUE} pa55-{VALUE}1 # {VALUE}0") == f"{masked} {masked} # {VALUE}0"
        assert secrets.unmasked == []
        (tmp_path / name).unlink()


@pytest.mark.parametrize("password", ["postgres", "Workspace", "surefoot", "service-user", "ledger-db-1", "s3cr3t!"])
def test_a_database_password_that_is_a_word_is_not_masked_and_that_is_said(tmp_path: Path, password: str) -> None:
    secrets = database(tmp_path, "postgresql://service-user@db/ledger-db-1", {"PGPASSWORD": password})
    assert secrets.mask(f"driver={password}") == f"driver={password}"
    [said] = secrets.unmasked
    assert said.startswith("the database's password, from PGPASSWORD, is a common word or has fewer than 8 characters")
    assert password not in said.replace("common word", "")


def test_the_keys_of_tiers_are_known_by_whatever_name(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text('[tiers.judge]\nmodel = "openai/x"\napi_key_env = "MINE"\n')
    secrets = worker_secrets(read_settings({"home": home}, {}, tmp_path), {"MINE": VALUE})
    assert secrets.mask(VALUE) == label("MINE")
