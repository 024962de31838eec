"""What to do about a database that answers and still does not do its work, by what its driver says."""

RIGHTS = "give this user SELECT, INSERT and UPDATE on the tables again (GRANT); what waits then goes on"
GONE = (
    "restore its tables from a backup, or name the right database with SUREFOOT_DATABASE_URL; what waits then goes on"
)
MENDED_BY = {
    "42501": RIGHTS,  # insufficient_privilege
    "42P01": GONE,  # undefined_table
    "3F000": GONE,  # invalid_schema_name
    "25006": "it takes no writes: end its read-only mode (default_transaction_read_only), or name the primary",
    "53100": "make room on its disk",  # disk_full
}
"""By PostgreSQL's code of the error. Each is mended while workers wait, as an absence is."""
SQLITE_REMEDIES = {
    "no such table": GONE,
    "readonly database": "give this user the right to write the file and its folder, or mount its disk writable",
}
IN_A_FILE = "its folder must be writable and have room"
ON_A_SERVER = "is it running, and does it let this user in?"


def is_mendable(error: Exception) -> bool:
    """Whether somebody who runs the database can mend what its driver says, without a change of ours."""
    return _code(error) in MENDED_BY


def remedy_of(error: Exception, said: str, in_a_file: bool) -> str:
    """Return what to do about an error of a driver, which ``said`` something."""
    if in_a_file:
        return next((remedy for words, remedy in SQLITE_REMEDIES.items() if words in said), IN_A_FILE)
    return MENDED_BY.get(_code(error), ON_A_SERVER)


def _code(error: Exception) -> str:
    return str(getattr(getattr(error, "orig", None), "sqlstate", None) or "")
