"""The command line as people use it: in processes of its own, on one home."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from client.embedded import child_environment, stop
from client.main import app
from schemas.outcome import EXIT_VERIFIED
from stores.settings import Settings


class Surefoot:
    """The command line on one home."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own."""
        process = subprocess.Popen(
            [sys.executable, "-m", "client.main", *arguments],
            env={**child_environment(self.settings), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Return exit code, standard output and standard error of a command."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=100)
        return process.returncode, out, err

    def ask(self, *arguments: str) -> tuple[int, str, str]:
        """Return the same of a command that only looks, without a process of its own."""
        done = CliRunner().invoke(app, ["--home", str(self.settings.home), *arguments])
        return done.exit_code, done.stdout, done.stderr

    def submit(self, scenario: Path) -> str:
        """Submit a scenario and return the task's id."""
        code, out, err = self("submit", str(scenario))
        assert code == EXIT_VERIFIED, err
        return out.strip()

    def state(self, task_id: str) -> dict[str, Any]:
        """Return what `show --json` says."""
        code, out, err = self.ask("show", task_id, "--json")
        assert code == EXIT_VERIFIED, err
        shown: dict[str, Any] = json.loads(out)
        return shown


@contextlib.contextmanager
def command_line(settings: Settings) -> Iterator[Surefoot]:
    """Give the command line for the length of a block; what it has started is then stopped."""
    commands = Surefoot(settings)
    try:
        yield commands
    finally:
        for process in commands.started:  # a test that failed may have left some
            process.kill()
            process.communicate()
        stop(settings)
