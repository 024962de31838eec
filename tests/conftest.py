"""Shared by all tests: one real Temporal server and one real PostgreSQL for the session, killed at its end."""

from collections.abc import Iterator

import pytest

from tests.support.postgres import PostgresServer, running_postgres
from tests.support.server import DevServer, running_server

# files that take minutes: begun last, they would keep one process busy while the other ones have nothing left to do
LONGEST = ("test_outages.py", "test_image.py", "test_long_run.py", "test_restart.py", "test_stores.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files; each stays in its order."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """A dev server on a file of its own."""
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server of its own; a test that stops it starts one for itself."""
    with running_postgres() as running:
        yield running
