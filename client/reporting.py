"""Where every command's errors end: three audiences, three exit codes, no traceback on the terminal."""

import contextlib
import json
import os
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from client.problems import CommandError
from client.streams import say
from schemas.errors import Final, Retryable, StorageUnavailable
from schemas.outcome import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_PREREQUISITE
from stores.files import make_private, storage_problem
from stores.identity import StoresDiffer
from stores.settings import Settings, SettingsError, load_settings

EXIT_INTERRUPTED = 130


def carry_out(home: Path | None, command: Callable[[Settings], int], as_json: bool = False) -> int:
    """Run ``command`` on the configured settings and return its exit code; what it raises becomes one that fits.

    Errors are told on standard error, and with ``as_json`` on standard output, too, as one JSON object.
    """
    settings: Settings | None = None
    try:
        settings = load_settings(home=home)
        return command(settings)
    except KeyboardInterrupt:
        say("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _unread()
    except Exception as error:  # the edge: everything is told, and what nobody foresaw is logged
        return _report(error, settings, as_json)


def _unread() -> int:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever read our output has enough of it
    return EXIT_INTERRUPTED


def _report(error: Exception, settings: Settings | None, as_json: bool) -> int:
    if isinstance(error, OSError):
        error = storage_problem(error) or error
    code, said = _understood(error)
    if code == EXIT_FAILED:
        said += _logged(error, settings)
    say(said)
    if code == EXIT_FAILED:
        say("please report it: the command, the traceback, and what `surefoot --version` and `surefoot doctor` say")
    if as_json:
        told = {"type": type(error).__name__, "message": said, "exit_code": code}
        try:
            print(json.dumps({"error": told}, ensure_ascii=False), flush=True)
        except BrokenPipeError:
            _unread()
    return code


def _understood(error: Exception) -> tuple[int, str]:
    """Return the exit code of an error, and what to say of it."""
    from temporalio.service import RPCError  # here: what a command has not imported it has not raised

    from stores.database import DatabaseRefused
    from stores.temporal import ServerUnreachable
    from stores.tracing import TelemetryUnavailable

    if isinstance(error, CommandError):
        return error.exit_code, str(error)
    if isinstance(error, SettingsError):
        return EXIT_BAD_INPUT, str(error)
    if isinstance(error, ServerUnreachable | TelemetryUnavailable | DatabaseRefused | StoresDiffer):
        return EXIT_PREREQUISITE, str(error)
    if isinstance(error, Retryable | Final):
        return EXIT_PREREQUISITE, f"{type(error).__name__}: {error}; `surefoot doctor` says what works here"
    if isinstance(error, RPCError):
        said = f"the Temporal server answers {error.status.name.lower()}: {error.message}; try `surefoot doctor`"
        return EXIT_PREREQUISITE, said
    return EXIT_FAILED, f"a fault of Surefoot: {type(error).__name__}: {error}"


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
