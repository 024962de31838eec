"""A fresh data folder for each test, and a fresh database of each kind."""

from pathlib import Path

import pytest

from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from tests.support.postgres import PostgresServer

DATABASES = ("sqlite", "postgresql")


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of an empty database, once for each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/surefoot.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.fresh()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """Address of an empty SQLite database."""
    return f"sqlite:///{tmp_path}/surefoot.db"


@pytest.fixture
def ledger(database_url: str) -> Ledger:
    return Ledger(database_url)


@pytest.fixture
def artifacts(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "artifacts")
