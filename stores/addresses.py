"""Addresses of databases: which are ours, and which paths SQLite would read as others."""

import re
from pathlib import Path

LAST_PORT = 65_535
DATABASE_URLS = (
    "must be sqlite:////absolute/path or postgresql://user@host:port/database, with one host (an IPv6 address in "
    "brackets; several as ?host=a,b&port=1,2) and a port up to 65535; a password may stand in it (user:password@, "
    "its special characters percent-encoded), in PGPASSWORD or in ~/.pgpass"
)
_SQLITE_URL = re.compile(r"sqlite:////[^?]+")
_POSTGRES_URL = re.compile(
    r"postgresql(\+psycopg)?://([^/?#@\s]*@)?([^/?#@\s:,\[\]]*|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?/[^/?#@\s]+"
    r"(\?[^#@\s]+)?"
)
_MISREAD = re.compile(r"[%?#]")


def known_database(url: str) -> str:
    """Return ``url``; raise ValueError for what is no URL of ours, and for a password where it would be shown."""
    postgres = _POSTGRES_URL.fullmatch(url)
    if postgres and "password=" not in url and int(postgres["port"] or 0) <= LAST_PORT:
        return url
    if _SQLITE_URL.fullmatch(url):
        return url
    raise ValueError(DATABASE_URLS)


def misread(folder: Path) -> str | None:
    """Return why no database file can be in ``folder``: its path is another one as a URI. None where it is not.

    Temporal's server puts the path into a URI as it is, and takes no escaped one: its file would lie elsewhere.
    """
    found = _MISREAD.search(str(folder))
    if found is None:
        return None
    return (
        f"{folder} holds {found[0]!r}, which SQLite and Temporal's server read as the end of a file's name or as a "
        "code; choose a folder whose path holds none of % ? #"
    )
