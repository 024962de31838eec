"""What every proof stands on: a home with a server of its own and, where wanted, a worker."""

from collections.abc import Iterator

import pytest

from tests.proof.bench import serving_home
from tests.support.server import DevServer
from tests.support.tasks import WorkerProcess, worker


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """A server on a home of the module's own."""
    with serving_home(tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture(scope="module")
def serving(home: DevServer) -> Iterator[WorkerProcess]:
    """A worker for rehearsed models that serves ``home``."""
    with worker(home.settings) as running:
        yield running
