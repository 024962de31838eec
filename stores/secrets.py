"""The secrets of a worker: resolved at the moment of use, and known from then on to whatever is stored or logged."""

import contextlib
import logging
import os
import re
import signal
import stat
import subprocess
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from schemas.errors import SecretUnresolved
from schemas.secrets import SecretSource
from stores.database_passwords import PASSWORD, database_passwords, is_word
from stores.masking import SHORTEST_SECRET, Masker, label
from stores.settings import Settings
from stores.views import squeeze

log = logging.getLogger("surefoot.secrets")

MAX_BYTES = 32 * 1024  # an environment variable holds 128 kB at most
KEPT_VALUES = 1000  # of one name: values rotate, and older ones still stand in files
KEPT_CHARACTERS = 2_000_000  # of one name; what is searched for takes some twenty times as much memory
KEY_VARIABLE = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS)$", re.IGNORECASE)
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
        self.unmasked: list[str] = []
        """What is known and cannot be masked, and why, for people."""
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
        """Mask ``value`` from now on; return whether it is long enough for that.

        The last ``KEPT_VALUES`` values of a name are kept, or fewer long ones; to forget older ones is logged.
        """
        if len(squeeze(value)) < SHORTEST_SECRET:
            return False
        forgotten = 0
        with self._lock:
            if value not in self._known:
                forgotten = self._forget_for(name, value)
                self._known[value] = name
                if forgotten:
                    self._masker = Masker(self._known)
                else:
                    self._masker.add(value, name)
        if forgotten:
            log.warning("secret %s rotates: its %d oldest values are forgotten, and masked no longer", name, forgotten)
        return True

    def _forget_for(self, name: str, value: str) -> int:
        """Make room for ``value``: where there is none, forget a tenth at once, since that takes a while."""
        older = [known for known, of in self._known.items() if of == name]
        room = KEPT_CHARACTERS - len(value)
        if len(older) < KEPT_VALUES and sum(map(len, older)) <= room:
            return 0
        kept = older[KEPT_VALUES // 10 if len(older) >= KEPT_VALUES else 1 :]
        while kept and sum(map(len, kept)) > room:
            del kept[: len(kept) // 10 + 1]
        for forgotten in older[: len(older) - len(kept)]:
            del self._known[forgotten]
        return len(older) - len(kept)

    def learn_environment(self) -> None:
        """Learn the keys in the environment, by what they are called; a path is none."""
        for variable, value in sorted(self._environ.items()):
            if KEY_VARIABLE.search(variable) and len(value) >= SHORTEST_KEY and not _is_path(value):
                self.learn(variable, value)

    def learn_database(self, url: str) -> None:
        """Learn the passwords of the database at ``url``; a word that masking would find everywhere is ``unmasked``."""
        for password, place in database_passwords(url, self._environ).items():
            if is_word(password, url) or not self.learn(PASSWORD, password):
                self.unmasked.append(
                    f"the database's password, from {place}, is a common word or has fewer than {SHORTEST_SECRET} "
                    "characters: it is masked nowhere; give that user a long random one"
                )

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
        self.learn_environment()
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

    def names_in(self, data: bytes) -> list[str]:
        """Return the names of the known values that stand in ``data``, in order."""
        return self._masker.names_in(data.decode("utf-8", "surrogateescape"))

    def labels_in(self, text: str) -> list[str]:
        """Return the names of the secrets whose masks stand in ``text``, in order."""
        return self._masker.labels_in(text)

    def _resolve(self, name: str) -> str:
        source = self._sources.get(name)
        if source is None:
            known = f"they have {', '.join(self._sources)}" if self._sources else "they have none at all"
            raise SecretUnresolved(
                f"secret {name}: the settings of this worker have none of that name ({known}); add [secrets.{name}] "
                "with env, file or command to config.toml in its data folder, and restart it"
            )
        value, place = self._read(name, source)
        problem = _problem(value, (name, *self._sources, PASSWORD))
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
    """Return the secrets that the settings name; the keys of its tiers and the database's
    passwords are known from the start."""
    secrets = Secrets(settings.secrets, environ)
    for tier in settings.tiers.values():
        if tier.api_key_env and tier.api_key_env in environ:
            secrets.learn(tier.api_key_env, environ[tier.api_key_env])
    secrets.learn_database(settings.database_url)
    return secrets


def _problem(value: str, names: Iterable[str]) -> str | None:
    """Return why a value cannot be used, or None."""
    if not value.strip():
        return "is empty; put the value there"
    if "\x00" in value:
        return "holds a NUL character, which no environment variable can; use a text"
    size = len(squeeze(value))
    if size < SHORTEST_SECRET:
        return (
            f"has {size} characters (blanks do not count); fewer than {SHORTEST_SECRET} cannot be masked "
            "without blanking ordinary words; use a longer one"
        )
    if len(value.encode("utf-8", "surrogateescape")) > MAX_BYTES:
        return f"has more than {MAX_BYTES:,} bytes; give commands a file instead"
    if any(squeeze(value) in label(name) for name in names):
        return "is part of the name of a secret, which stands in texts; put the value there"
    return None


def _is_path(value: str) -> bool:
    try:
        return Path(value).exists()
    except (OSError, ValueError):
        return False


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
