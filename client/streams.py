"""Standard output and error: any text, whatever their encoding is, and what is not a command's result."""

import io
import sys


def accept_any_text() -> None:
    """Write what the encoding of standard output or error lacks as an escape: a symbol must not end a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(text: str) -> None:
    """Tell the person something that is not the command's result."""
    print(f"surefoot: {text}", file=sys.stderr, flush=True)
