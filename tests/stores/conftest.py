"""A fresh data folder for each test, and one migrated database to copy."""

from pathlib import Path

import pytest

from stores.artifacts import ArtifactStore
from stores.ledger import Ledger


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/surefoot.db"


@pytest.fixture
def ledger(url: str) -> Ledger:
    return Ledger(url)


@pytest.fixture
def artifacts(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "artifacts")
