"""Where every command's errors end: three audiences, three exit codes, no traceback on the terminal."""

import contextlib
import os
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from temporalio.service import RPCError

from client.problems import CommandError
from client.session import say
from schemas.errors import Final, Retryable, StorageUnavailable
from schemas.outcome import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_PREREQUISITE
from stores.database import DatabaseRefused
from stores.files import make_private, storage_problem
from stores.settings import Settings, SettingsError, load_settings
from stores.temporal import ServerUnreachable
from stores.tracing import TelemetryUnavailable

EXIT_INTERRUPTED = 130


def carry_out(home: Path | None, command: Callable[[Settings], int]) -> int:
    """Run ``command`` on the configured settings and return its exit code; what it raises becomes one that fits."""
    settings: Settings | None = None
    try:
        settings = load_settings(home=home)
        return command(settings)
    except KeyboardInterrupt:
        say("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever read our output has enough of it
        return EXIT_INTERRUPTED
    except Exception as error:  # the edge: everything is told, and what nobody foresaw is logged
        return _report(error, settings)


def _report(error: Exception, settings: Settings | None) -> int:
    if isinstance(error, OSError):
        error = storage_problem(error) or error
    if isinstance(error, CommandError):
        say(str(error))
        return error.exit_code
    if isinstance(error, SettingsError):
        say(str(error))
        return EXIT_BAD_INPUT
    if isinstance(error, ServerUnreachable | TelemetryUnavailable | DatabaseRefused):
        say(str(error))
        return EXIT_PREREQUISITE
    if isinstance(error, Retryable | Final):
        say(f"{type(error).__name__}: {error}; `surefoot doctor` says what works here")
        return EXIT_PREREQUISITE
    if isinstance(error, RPCError):
        say(f"the Temporal server answers {error.status.name.lower()}: {error.message}; try `surefoot doctor`")
        return EXIT_PREREQUISITE
    say(f"a fault of Surefoot: {type(error).__name__}: {error}{_logged(error, settings)}")
    say("please report it: the command, the traceback, and what `surefoot --version` and `surefoot doctor` say")
    return EXIT_FAILED


def _logged(error: Exception, settings: Settings | None) -> str:
    """Append the traceback to the log and say where it is; without a log it is shown."""
    text = "".join(traceback.format_exception(error))
    if settings is not None:
        path = settings.logs_dir / "client.log"
        with contextlib.suppress(OSError, StorageUnavailable):
            make_private(settings.home)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(f"{datetime.now(UTC).isoformat()}\n{text}\n")
            return f"; the traceback is in {path}"
    return f"\n{text}"
