"""Which model answers which tier: the command line over the scenario over the settings, with frozen prices."""

import importlib.util
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from pydantic import ValidationError

from client.problems import BadInput
from client.scenarios import Problem, ScenarioFile, unknown_model
from client.yaml_document import Location, dotted
from schemas.models import REHEARSED, ModelChoice, Tier
from schemas.pricing import Price
from schemas.rehearsal import Rehearsal
from schemas.scenario import ModelEntry
from schemas.texts import TextRef
from stores.model_prices import key_variable, look_up
from stores.own_server import names_own_server
from stores.settings import Settings

FREE = Price(input_microusd_per_mtok=0, output_microusd_per_mtok=0)


@dataclass(frozen=True)
class Script:
    """The rehearsed model's script, stored."""

    ref: TextRef
    """Where it is."""
    rehearsal: Rehearsal
    """What it says."""


@dataclass
class Tiers:
    """Resolves the tiers of one scenario and collects what stands in the way."""

    file: ScenarioFile
    """The scenario."""
    settings: Settings
    """Its background."""
    script: Script | None
    """The rehearsal, where the scenario has one."""
    override: ModelEntry | None = None
    """A model for every tier, from the command line."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """Where keys are looked for."""
    problems: list[Problem] = field(default_factory=list)
    """What was found; empty where the choices can be used."""

    def resolve(self) -> dict[Tier, ModelChoice]:
        """Return the model of every tier; those with problems may be missing."""
        chosen = {tier: self._choice(tier) for tier in Tier}
        return {tier: choice for tier, choice in chosen.items() if choice is not None}

    def _choice(self, tier: Tier) -> ModelChoice | None:
        entry, at = self._entry(tier)
        if entry is None:
            here = f"set models.default or models.{tier.value} here"
            there = f"tiers.{tier.value}.model in the settings (SUREFOOT_TIERS__{tier.value.upper()}__MODEL)"
            self._note(("models",), f"no model for the tier {tier.value}; {here}, or {there}")
            return None
        place = dotted(at if len(at) > 1 else (*at, tier.value))
        problems = list(self._rehearsed_problems() if entry.model == REHEARSED else self._problems(entry, place))
        for text in problems:
            self._note(at, text)
        return None if problems else self._frozen(entry)

    def _entry(self, tier: Tier) -> tuple[ModelEntry | None, Location]:
        if self.override:
            return self.override, ("models",)
        said = self.file.scenario.models.entry(tier)
        if said:
            named = getattr(self.file.scenario.models, tier.value) is not None
            return said, ("models", tier.value if named else "default")
        return self.settings.tiers.get(tier), ("models",)

    def _rehearsed_problems(self) -> Iterator[str]:
        if self.script is None:
            yield "the model is rehearsed, and the scenario has no script; name it as `rehearsal`"

    def _problems(self, entry: ModelEntry, place: str) -> Iterator[str]:
        if importlib.util.find_spec("litellm") is None:
            yield f"{entry.model} needs the model adapter, which is not installed; run `make setup`"
            return
        known = look_up(entry.model)
        if known is None and entry.api_base is None:
            yield unknown_model(entry.model)
            return
        key = _key_name(entry)
        if key and not self.environ.get(key) and not names_own_server(self.environ):  # else its workers are elsewhere
            yield f"{entry.model} needs a key; set the environment variable {key}, or name another as api_key_env"
        if self.file.scenario.limits.usd is not None and _price(entry) is None:
            where = "--price" if self.override else f"{place}.price (input_usd_per_mtok, output_usd_per_mtok)"
            yield f"limits.usd is set and the price of {entry.model} is unknown; set {where}, or drop limits.usd"
        most = known.max_output_tokens if known and entry.api_base is None else None
        if most and entry.max_output_tokens and entry.max_output_tokens > most:
            yield f"max_output_tokens {entry.max_output_tokens:,} is more than {entry.model} answers; allowed: {most:,}"

    def _frozen(self, entry: ModelEntry) -> ModelChoice:
        rehearsed = self.script if entry.model == REHEARSED else None
        said: dict[str, Any] = {
            "max_output_tokens": entry.max_output_tokens,
            "timeout_seconds": entry.timeout_seconds,
            "structured_output": entry.structured_output,
        }
        return ModelChoice(
            model=entry.model,
            api_base=entry.api_base,
            api_key_env=None if rehearsed else _key_name(entry),
            price=_pretended(rehearsed.rehearsal) if rehearsed else _price(entry),
            rehearsal=rehearsed.ref if rehearsed else None,
            **{name: value for name, value in said.items() if value is not None},
        )

    def _note(self, at: Location, text: str) -> None:
        problem = self.file.problem(at, text)
        if problem not in self.problems:
            self.problems.append(problem)


def _key_name(entry: ModelEntry) -> str | None:
    """Name the key's variable, so that a missing key is known before the start; an own service may need none."""
    return entry.api_key_env if entry.api_key_env or entry.api_base else key_variable(entry.model)


def _pretended(rehearsal: Rehearsal) -> Price:
    return rehearsal.price.frozen_price() if rehearsal.price else FREE


def _price(entry: ModelEntry) -> Price | None:
    """Return the price: an own service has no known one, whatever its model is called."""
    known = None if entry.api_base else look_up(entry.model)
    return entry.price.frozen_price() if entry.price else known.price if known else None


def entry_of(
    model: str | None, api_base: str | None, api_key_env: str | None, price: str | None = None
) -> ModelEntry | None:
    """Return the model that the command line names, or None where it names none. Raises BadInput.

    ``price`` is ``INPUT/OUTPUT`` in US dollars per million tokens.
    """
    if model is None:
        if api_base or api_key_env or price:
            raise BadInput("--api-base, --api-key-env and --price belong to --model")
        return None
    fields = {"model": model, "api_base": api_base, "api_key_env": api_key_env, "price": _price_flag(price)}
    try:
        return ModelEntry.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        problems = "; ".join(f"--{str(item['loc'][0]).replace('_', '-')}: {item['msg']}" for item in error.errors())
        raise BadInput(problems) from error


def _is_number(text: str) -> bool:
    try:
        return Decimal(text.strip()).is_finite()
    except InvalidOperation:
        return False


def _price_flag(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    paid, _, earned = text.partition("/")
    if not (_is_number(paid) and _is_number(earned)):
        raise BadInput(f"--price: give INPUT/OUTPUT in dollars per million tokens, as 0.25/2 or 0/0, not {text!r}")
    return {"input_usd_per_mtok": paid.strip(), "output_usd_per_mtok": earned.strip()}
