"""Texts from the environment, made safe and short."""

from schemas.base import counted

MAX_EXCERPT_CHARACTERS = 6000  # of one observation's output, in a prompt
_MARK_CHARACTERS = 60  # room for the sentence that replaces what is left out


def decode(data: bytes) -> str:
    """Return the bytes as text: what is no UTF-8 becomes a replacement character, NUL a visible symbol."""
    return data.decode("utf-8", "replace").replace("\x00", "␀")


def head_and_tail(text: str, limit: int) -> str:
    """Return ``text`` in at most ``limit`` characters: its head and its tail, and how much is left out between."""
    if len(text) <= limit:
        return text
    head = (limit - _MARK_CHARACTERS) // 2
    tail = limit - _MARK_CHARACTERS - head
    return f"{text[:head]}\n[… {len(text) - head - tail:,} characters left out …]\n{text[len(text) - tail :]}"


def line_of(text: str, limit: int = 200) -> str:
    """Return ``text`` as one line of at most ``limit`` printable characters, with the cut marked."""
    words = " ".join(text.split())
    shown = "".join(character if character.isprintable() else "�" for character in words)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def last_line(text: str, limit: int = 200) -> str:
    """Return the last line that is not empty, or nothing."""
    lines = text.rstrip()[-4 * limit - 1000 :].splitlines()
    return line_of(lines[-1], limit) if lines else ""


def in_lines(lines: list[str], limit: int) -> str:
    """Return as many whole lines as fit into ``limit`` characters, and how many are left out."""
    kept: list[str] = []
    size = 0
    for number, line in enumerate(lines):
        size += len(line) + 1
        if size > limit - _MARK_CHARACTERS:
            kept.append(f"[… {counted(len(lines) - number, 'more line')} …]")
            break
        kept.append(line)
    return "\n".join(kept)
