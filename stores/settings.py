"""Settings: flags > ``SUREFOOT_*`` > ``./surefoot.toml`` > ``<home>/config.toml``, read once and frozen."""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from platformdirs import user_data_dir
from pydantic import AfterValidator, BaseModel, Field, ValidationError

from schemas.base import Frozen
from schemas.models import Tier
from schemas.scenario import ModelEntry as TierSettings
from schemas.scenario import UsdPrice
from schemas.secrets import SecretName, SecretSource
from stores.addresses import DATABASE_URLS, known_database, misread

PREFIX = "SUREFOOT_"
PROJECT_FILE = "surefoot.toml"
HOME_FILE = "config.toml"
WHOLE = {"model", *SecretSource.model_fields} - {"timeout_seconds"}
"""Fields that make an entry another one: it takes nothing over from lower sources."""

ADDRESSES = {
    ("telemetry", "otlp_endpoint"): "http://127.0.0.1:4318",
    ("telemetry", "prometheus"): "127.0.0.1:9464 (no host name)",
}

Source = tuple[str, dict[str, Any]]


class SettingsError(Exception):
    """Settings that cannot be used; the message names the file or variable, the field, and what is allowed."""


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class TelemetrySettings(Frozen):
    """Where traces and metrics go; nowhere unless set."""

    otlp_endpoint: Annotated[str | None, Field(pattern=r"^https?://[^\s/]+")] = None
    """Address of an OTLP/HTTP receiver, as ``http://127.0.0.1:4318``; spans are sent to ``/v1/traces`` there."""
    prometheus: Annotated[str | None, Field(pattern=r"^(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-fA-F:]+\]):\d{1,5}$")] = None
    """Address, as ``127.0.0.1:9464``, on which a worker shows its metrics to Prometheus under ``/metrics``."""
    content: bool = False
    """Whether spans hold prompts, replies, arguments and results."""
    service_name: Annotated[str, Field(min_length=1, max_length=100)] = "surefoot"
    """Name of this installation in traces."""


class Deployment(Frozen):
    """The version of these workers; tasks stay on the version that they began on."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=100)]
    """What all versions have in common."""
    build_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100)]
    """Which build this is."""


class Health(Frozen):
    """Where a worker says how it is."""

    address: Annotated[str, Field(pattern=r"^([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$")]
    """``host:port`` of ``/live`` and ``/ready``; an IPv6 address stands in brackets, port 0 is any free one."""


SECTIONS: dict[str, type[Frozen]] = {"deployment": Deployment, "health": Health, "telemetry": TelemetrySettings}
"""Sections that have the same fields wherever they stand."""


class Settings(Frozen):
    """What a process of Surefoot needs to know about this installation. Paths are absolute."""

    home: Path
    """The data folder."""
    database_url: Annotated[str, AfterValidator(known_database), Field(repr=False)]
    """The ledger's database, as ``sqlite:////absolute/path`` or ``postgresql://user@host/database``;
    ``<home>/surefoot.db`` where it is left out. It may hold a password: show it with ``stores.database.shown``."""
    queue_prefix: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=60)] = "surefoot"
    """Name of the main task queue, and the beginning of every other queue's name."""
    tiers: Annotated[dict[Tier, TierSettings], Field(default_factory=dict)]
    """Models of the tiers that a scenario leaves open, written like a scenario's."""
    secrets: Annotated[dict[SecretName, SecretSource], Field(default_factory=dict)]
    """Where a worker finds the values of the secrets that tasks name."""
    log_level: LogLevel = LogLevel.INFO
    """How much is logged."""
    deployment: Deployment | None = None
    """The version of the workers; they are unversioned where it is left out."""
    health: Health | None = None
    """Probes of the workers; none where it is left out."""
    temporal_cli: Path | None = None
    """The ``temporal`` program that the embedded server is; the one installed beside Python where it is left out."""
    telemetry: TelemetrySettings = TelemetrySettings()
    """Where traces and metrics go."""

    @property
    def artifacts_dir(self) -> Path:
        """Texts and blobs under their hashes."""
        return self.home / "artifacts"

    @property
    def archive_dir(self) -> Path:
        """Readable records of runs."""
        return self.home / "archive"

    @property
    def workspaces_dir(self) -> Path:
        """Files that agents work on."""
        return self.home / "workspaces"

    @property
    def logs_dir(self) -> Path:
        """Logs of the processes that run in the background."""
        return self.home / "logs"

    @property
    def rehearsed_record(self) -> Path:
        """What the rehearsed model says it has answered, one JSON object a line: its bill."""
        return self.logs_dir / "rehearsed-model.jsonl"

    @property
    def run_dir(self) -> Path:
        """What lives only as long as the processes: addresses, process ids, locks."""
        return self.home / "run"

    @property
    def temporal_db(self) -> Path:
        """Database of the embedded Temporal server."""
        return self.home / "temporal.db"


def load_settings(**flags: Any) -> Settings:
    """Return the settings of this process; flags that are None count as not given. Raises SettingsError."""
    return read_settings(flags, os.environ, Path.cwd())


def read_settings(flags: Mapping[str, Any], environ: Mapping[str, str], folder: Path) -> Settings:
    """Return the settings of a process with these flags and variables in ``folder``.

    A source that names a tier's model replaces what lower sources say about that tier, so that no model is
    called with another one's price or address. Raises SettingsError.
    """
    sources: list[Source] = [
        ("command line", {name: value for name, value in flags.items() if value is not None}),
        ("environment", _from_environment(environ)),
        (str(folder / PROJECT_FILE), _from_file(folder / PROJECT_FILE)),
    ]
    home = _home(sources, folder)
    of_home = _from_file(home / HOME_FILE)
    if "secrets" in sources[-1][1]:
        raise SettingsError(
            f"{folder / PROJECT_FILE}: secrets: cannot stand here: a worker resolves them, and runs elsewhere; "
            f"move them to {home / HOME_FILE}"
        )
    if "home" in of_home:
        raise SettingsError(f"{home / HOME_FILE}: home: cannot stand in the home's own file; set SUREFOOT_HOME instead")
    sources.append((str(home / HOME_FILE), of_home))
    merged: dict[str, Any] = {"database_url": f"sqlite:///{home}/surefoot.db"}
    for _, data in reversed(sources):
        merged = _over(merged, data)
    try:
        return Settings.model_validate_json(json.dumps({**merged, "home": str(home)}, default=str))
    except ValidationError as error:
        lines = [_line(dict(problem), sources) for problem in error.errors(include_input=False, include_url=False)]
        raise SettingsError("\n".join(lines)) from error


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read ``SUREFOOT_TIERS__JUDGE__MODEL`` as ``tiers.judge.model``; an empty variable counts as not set.

    The name of a secret keeps its capital letters.
    """
    found: dict[str, Any] = {}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(PREFIX) or not text:
            continue
        *parents, name = variable.removeprefix(PREFIX).lower().split("__")
        if parents[:1] == ["secrets"]:
            parents[1:] = [parent.upper() for parent in parents[1:]]
        place = found
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise SettingsError(f"{variable}: {parent} has a value of its own in another variable")
        place[name] = text if _is_text(parents, name) else _scalar(text)
    return found


def _is_text(parents: list[str], name: str) -> bool:
    """Whether only a text can stand there: a build named 1.10 is not the number 1.1."""
    return parents[:1] not in (["tiers"], ["secrets"]) and [*parents, name] != ["telemetry", "content"]


def _scalar(text: str) -> str | int | float | bool:
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?\d{1,18}\.\d{1,18}", text) else text


def _from_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except PermissionError as error:
        way_out = "give this user the right to read there, or name another data folder with SUREFOOT_HOME"
        raise SettingsError(f"{path}: cannot be read: {error.strerror}; {way_out}") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from error


def _home(sources: list[Source], folder: Path) -> Path:
    for name, data in sources:
        if "home" in data:
            home = data["home"]
            if not isinstance(home, str | Path) or not str(home):
                raise SettingsError(f"{_place(name, ('home',))}: must be the path of a folder")
            return _usable(_place(name, ("home",)), (folder / Path(home).expanduser()).resolve())
    return _usable("the default home", Path(user_data_dir("surefoot")).resolve())


def _usable(place: str, home: Path) -> Path:
    said = misread(home)
    if said:
        raise SettingsError(f"{place}: {said}")
    return home


def _over(lower: dict[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(lower)
    for name, value in upper.items():
        below = merged.get(name)
        whole = isinstance(value, dict) and not value.keys().isdisjoint(WHOLE)
        if isinstance(value, dict) and isinstance(below, dict) and not whole:
            value = _over(below, value)
        merged[name] = value
    return merged


def _line(problem: dict[str, Any], sources: list[Source]) -> str:
    loc = tuple(str(part) for part in problem["loc"] if part != "[key]")
    name = max(sources, key=lambda source: _depth(source[1], loc))[0]
    message = problem["msg"]
    if problem["type"] == "extra_forbidden":
        message = f"unknown; allowed here: {', '.join(_allowed(loc[:-1]))}"
    elif loc == ("database_url",):
        message = DATABASE_URLS
    elif problem["type"] == "string_pattern_mismatch" and loc in ADDRESSES:
        message = f"must be an address, as {ADDRESSES[loc]}"
    return f"{_place(name, loc)}: {message}"


def _place(source: str, loc: tuple[str, ...]) -> str:
    if source == "environment":
        return PREFIX + "__".join(loc).upper()
    return f"{source}: {'.'.join(loc)}"


def _depth(data: Any, loc: tuple[str, ...]) -> int:
    """How many parts of ``loc`` the source names; max() takes the first, so the highest of equal sources."""
    for depth, part in enumerate(loc):
        if not isinstance(data, dict) or part not in data:
            return depth
        data = data[part]
    return len(loc)


def _allowed(parents: tuple[str, ...]) -> list[str]:
    if parents and parents[0] in SECTIONS:
        return sorted(SECTIONS[parents[0]].model_fields)
    models: dict[int, type[BaseModel]] = {0: Settings, 2: TierSettings, 3: UsdPrice}
    if parents[:1] == ("secrets",):
        models[2] = SecretSource
    return sorted(models[len(parents)].model_fields)
