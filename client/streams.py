"""Standard output and error that take any text, whatever their encoding is."""

import io
import sys


def accept_any_text() -> None:
    """Write what the encoding of standard output or error lacks as an escape: a symbol must not end a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
