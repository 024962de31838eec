"""The secrets of a worker: resolved at the moment of use, and known from then on to whatever is stored or logged."""

import contextlib
import os
import re
import signal
import stat
import subprocess
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote, urlsplit

from schemas.errors import SecretUnresolved
from schemas.secrets import SecretSource
from stores.masking import SHORTEST_SECRET, Masker, label
from stores.settings import Settings

MAX_BYTES = 32 * 1024  # an environment variable holds 128 kB at most
KEPT_VALUES = 8  # of one name: values rotate, and older ones still stand in files
KEY_VARIABLE = re.compile(r"(API_KEY|ACCESS_KEY|_TOKEN)$")
SHORTEST_KEY = 16  # characters of a key that nobody has named as one


class Secrets:
    """Resolves named secrets, and masks every value that it has come to know. Safe to use from several threads."""

    def __init__(
        self, sources: Mapping[str, SecretSource] | None = None, environ: Mapping[str, str] = os.environ
    ) -> None:
        """Look the names up in ``sources``, and environment variables in ``environ``; nothing is resolved yet."""
        self._sources = dict(sources or {})
        self._environ = environ
        self._known: dict[str, str] = {}
        self._masker = Masker({})
        self._lock = threading.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        """The configured names."""
        return tuple(self._sources)

    def resolve(self, names: Iterable[str]) -> dict[str, str]:
        """Return the present values by name; from now on they are masked. Blocks; raises SecretUnresolved."""
        return {name: self._resolve(name) for name in names}

    def learn(self, name: str, value: str) -> bool:
        """Mask ``value`` from now on; return whether it is long enough for that."""
        if len(value) < SHORTEST_SECRET:
            return False
        with self._lock:
            if value not in self._known:
                older = [known for known, of in self._known.items() if of == name]
                for forgotten in older[: max(len(older) - KEPT_VALUES + 1, 0)]:
                    del self._known[forgotten]
                self._known[value] = name
                self._masker = Masker(self._known)
        return True

    def learn_all(self) -> dict[str, str]:
        """Learn what can be resolved, and the keys in the environment; return why each of the others cannot. Blocks."""
        problems: dict[str, str] = {}

        def learn(name: str) -> None:
            try:
                self._resolve(name)
            except SecretUnresolved as error:
                problems[name] = str(error)

        if self._sources:
            with ThreadPoolExecutor(max_workers=8) as pool:
                list(pool.map(learn, self._sources))
        for variable, value in sorted(self._environ.items()):
            if KEY_VARIABLE.search(variable) and len(value) >= SHORTEST_KEY:
                self.learn(variable, value)
        return problems

    def mask(self, text: str) -> str:
        """Return ``text`` without any known value."""
        return self._masker.mask(text)

    def mask_head(self, text: str) -> str:
        """Return a text whose end was cut off without any known value or beginning of one."""
        return self._masker.mask_head(text)

    def mask_tail(self, text: str) -> str:
        """Return a text whose beginning was cut off without any known value or end of one."""
        return self._masker.mask_tail(text)

    def mask_bytes(self, data: bytes) -> bytes:
        """Return ``data`` without any known value."""
        return self._masker.mask_bytes(data)

    def _resolve(self, name: str) -> str:
        source = self._sources.get(name)
        if source is None:
            known = f"they have {', '.join(self._sources)}" if self._sources else "they have none at all"
            raise SecretUnresolved(
                f"secret {name}: the settings of this worker have none of that name ({known}); add [secrets.{name}] "
                "with env, file or command to config.toml in its data folder, and restart it"
            )
        value, place = self._read(name, source)
        problem = _problem(name, value)
        if problem:
            raise SecretUnresolved(f"secret {name}: its value, from {place}, {problem}")
        self.learn(name, value)
        return value

    def _read(self, name: str, source: SecretSource) -> tuple[str, str]:
        if source.env is not None:
            if source.env not in self._environ:
                raise SecretUnresolved(
                    f"secret {name}: the environment variable {source.env} is not set in this worker; set it and "
                    "restart the worker (surefoot down, then up)"
                )
            return self._environ[source.env], f"the environment variable {source.env}"
        if source.file is not None:
            return _text(name, _file(name, source.file)), source.file
        assert source.command, "a source has one of three"
        return _text(name, _printed(name, source.command, source.timeout_seconds)), f"`{source.command[0]}`"


def worker_secrets(settings: Settings, environ: Mapping[str, str] = os.environ) -> Secrets:
    """Return the secrets that the settings name; the database's password is known from the start."""
    secrets = Secrets(settings.secrets, environ)
    password = urlsplit(settings.database_url).password
    if password:
        secrets.learn("DATABASE_PASSWORD", unquote(password))
    return secrets


def _problem(name: str, value: str) -> str | None:
    """Return why a value cannot be used, or None."""
    if not value.strip():
        return "is empty; put the value there"
    if "\x00" in value:
        return "holds a NUL character, which no environment variable can; use a text"
    if len(value) < SHORTEST_SECRET:
        return (
            f"has {len(value)} characters; fewer than {SHORTEST_SECRET} cannot be masked without blanking ordinary "
            "words; use a longer one"
        )
    if len(value.encode("utf-8", "surrogateescape")) > MAX_BYTES:
        return f"has more than {MAX_BYTES:,} bytes; give commands a file instead"
    if value in label(name):
        return "is part of its own name; put the value there"
    return None


def _file(name: str, path: str) -> bytes:
    why = "it is no file, but a folder, pipe or device"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # the opening of a pipe would wait for its writer
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    return file.read(MAX_BYTES + 2)
        finally:
            os.close(descriptor)
    except OSError as error:
        why = error.strerror or str(error)
    raise SecretUnresolved(f"secret {name}: {path} cannot be read: {why}; put the value there, readable for the worker")


def _printed(name: str, command: tuple[str, ...], timeout_seconds: int) -> bytes:
    """Return what a command prints; its errors are not quoted, they may hold anything."""
    by_hand = "run it by hand where the worker runs"
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a command"
        raise SecretUnresolved(f"secret {name}: `{command[0]}` cannot be run: {reason}; {by_hand}") from None
    with process:
        try:
            said, _ = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            said = None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with what it has started, which may hold the pipe
    if said is None:
        raise SecretUnresolved(f"secret {name}: `{command[0]}` did not end within {timeout_seconds} s; {by_hand}")
    if process.returncode:
        raise SecretUnresolved(f"secret {name}: `{command[0]}` ended with code {process.returncode}; {by_hand}")
    return said


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise SecretUnresolved(f"secret {name}: its value is no UTF-8 text; encode it, as in base64") from None
