"""What a worker does not wait for before it polls."""

import importlib.util
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("litellm") is None, reason="an optional part: the demo's install is without it"
)

PROGRAM = """
import asyncio, sys
from workers.main import model_gateway
deferred = model_gateway()
assert deferred is not None
before = "litellm" in sys.modules
adapter = asyncio.run(deferred.get())
print(before, type(adapter).__name__, "litellm" in sys.modules)
"""


def test_a_worker_imports_litellm_at_its_first_request_only() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.split() == ["False", "LiteLlmGateway", "True"], done.stderr
