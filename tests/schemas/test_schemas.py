"""Every schema keeps the rules that hold for all of them."""

import datetime
import enum
import importlib
import pkgutil
import random
import uuid

import pytest
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

import schemas
from schemas.base import Frozen, rebuild
from schemas.errors import Final, Retryable, error_types
from schemas.pricing import Usage


def all_models() -> list[type[BaseModel]]:
    """Return every schema of the package."""
    for module in pkgutil.iter_modules(schemas.__path__):
        importlib.import_module(f"schemas.{module.name}")
    found: list[type[BaseModel]] = []
    queue: list[type[BaseModel]] = [Frozen]
    while queue:
        for child in queue.pop().__subclasses__():
            if child.__module__.startswith("schemas."):
                found.append(child)
                queue.append(child)
    return found


@pytest.mark.parametrize("model", all_models(), ids=lambda model: model.__name__)
def test_every_schema_is_frozen_strict_documented_and_without_clock_or_chance(model: type[BaseModel]) -> None:
    config = model.model_config
    assert config["frozen"]
    assert config["strict"]
    assert config["extra"] == "forbid"
    assert config["allow_inf_nan"] is False
    assert model.__doc__
    for name, field in model.model_fields.items():
        assert field.description, f"{model.__name__}.{name} has no description"
        assert field.default_factory in (None, dict), f"{model.__name__}.{name} computes its default"
        assert not isinstance(field.default, (uuid.UUID, datetime.datetime)), name


def test_a_default_is_the_same_in_every_process() -> None:
    for model in all_models():
        for field in model.model_fields.values():
            if field.default is not PydanticUndefined:
                allowed = (str, int, float, bool, tuple, dict, enum.Enum, BaseModel, type(None))
                assert isinstance(field.default, allowed)


def test_rebuild_validates_what_model_copy_would_let_through() -> None:
    usage = Usage(input_tokens=1)
    assert rebuild(usage, input_tokens=2).input_tokens == 2
    for wrong in ({"input_tokens": "5"}, {"input_tokens": True}, {"input_tokens": -1}, {"colour": 1}):
        with pytest.raises(ValidationError):
            rebuild(usage, **wrong)


def test_every_error_is_either_retried_or_final() -> None:
    assert len(error_types()) >= 15
    for error in error_types().values():
        assert issubclass(error, Retryable) != issubclass(error, Final)
        assert error.__doc__


def test_nothing_in_the_schemas_draws_a_random_number_at_import() -> None:
    before = random.getstate()
    all_models()
    assert random.getstate() == before
