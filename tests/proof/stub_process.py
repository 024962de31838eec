"""The model stub as a process of its own, and models that it answers for."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from schemas.models import ModelChoice
from tests.support.judging import Bill
from tests.support.model_bill import billed_microusd, read_bill
from tests.support.tasks import PRICE


class StubProcess:
    """A running stub."""

    def __init__(self, log: Path, rules: list[dict[str, Any]]) -> None:
        self.log = log
        behaviours = log.with_suffix(".behaviours.json")
        behaviours.write_text(json.dumps({"rules": rules}))
        command = [sys.executable, "-m", "tests.support.model_stub", "--log", str(log), "--behaviours", str(behaviours)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def choice(self, **changes: Any) -> ModelChoice:
        """Return a model that it answers for."""
        fields = {"model": "openai/stub", "api_base": self.url, "price": PRICE, "max_output_tokens": 500, **changes}
        return ModelChoice(**fields)

    def requests(self, workflow_id: str) -> list[dict[str, Any]]:
        """Return the log's entries of one task: what the service received, in order."""
        return [entry for entry in read_bill(self.log) if entry["key"].startswith(f"{workflow_id}:")]

    def bill(self) -> Bill:
        """Return what it has billed, one line for each request that is paid for."""
        return [
            {"effect_id": entry["key"], "microusd": billed_microusd([entry], PRICE)}
            for entry in read_bill(self.log)
            if entry["billed"] is not None
        ]


@contextlib.contextmanager
def stub_process(log: Path, rules: list[dict[str, Any]]) -> Iterator[StubProcess]:
    """Run a stub for the length of a block."""
    stub = StubProcess(log, rules)
    try:
        yield stub
    finally:
        stub.process.kill()
        stub.process.wait()
        assert stub.process.stdout is not None
        stub.process.stdout.close()
