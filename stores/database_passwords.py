"""Where PostgreSQL's own library finds the ledger's password, so that it can be masked."""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from stores.masking import SHORTEST_SECRET
from stores.views import squeeze

PASSWORD = "DATABASE_PASSWORD"
"""The name that the database's passwords are masked by."""
MAX_WORD = 11  # characters of a password of letters only that may be a word
MAX_FILE_BYTES = 1024 * 1024
_FIELD = re.compile(r"((?:[^:\\]|\\.)*)(?::|\Z)")


def database_passwords(url: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return every password that the database at ``url`` may be opened with, and where it was found.

    They stand in the URL, in PGPASSWORD, or in the password file, which is read as far as it can be.
    """
    found: dict[str, str] = {}
    inside = urlsplit(url).password
    if inside:
        found[unquote(inside)] = "SUREFOOT_DATABASE_URL"
    if environ.get("PGPASSWORD"):
        found.setdefault(environ["PGPASSWORD"], "PGPASSWORD")
    if url.startswith("postgresql"):
        file = _password_file(url, environ)
        for password in _listed(file):
            found.setdefault(password, str(file))
    return found


def is_word(password: str, url: str) -> bool:
    """Whether a password would be found in texts that say something else.

    It is that where it is short, or made of few letters only, or the name of the database's user, host or own.
    """
    parts = urlsplit(url)
    names = {parts.username, parts.hostname, parts.path.strip("/")}
    known = {unquote(name).casefold() for name in names if name}
    word = password.isalpha() and len(password) <= MAX_WORD
    return word or len(squeeze(password)) < SHORTEST_SECRET or password.casefold() in known


def _password_file(url: str, environ: Mapping[str, str]) -> Path:
    said = parse_qs(urlsplit(url).query).get("passfile", [])
    return Path((said and said[0]) or environ.get("PGPASSFILE") or f"{environ.get('HOME') or Path.home()}/.pgpass")


def _listed(file: Path) -> list[str]:
    """Return the passwords in a file of lines ``host:port:database:user:password``; ``\\`` escapes ``:`` and itself."""
    try:
        if not file.is_file():
            return []
        with file.open("rb") as opened:
            text = opened.read(MAX_FILE_BYTES).decode("utf-8", "replace")
    except OSError:  # nor can the driver read it
        return []
    lines = [_FIELD.findall(line) for line in text.splitlines() if not line.startswith("#")]
    return [re.sub(r"\\(.)", r"\1", fields[4]) for fields in lines if len(fields) > 4 and fields[4]]
