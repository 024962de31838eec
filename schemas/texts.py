"""Texts by reference: what is long lives in the artifact store under its SHA-256."""

from pydantic import Field

from schemas.base import Count, Row, Sha256


class TextRef(Row):
    """A text in the artifact store, with what a workflow must know to choose it and to reserve for it."""

    sha256: Sha256
    """SHA-256 of the UTF-8 bytes; the artifact's name is ``sha256:<hex>``."""
    size_bytes: Count
    """Length of the UTF-8 bytes."""
    tokens: Count
    """Estimated tokens, by ``estimate_tokens``."""


class BlobRef(Row):
    """Bytes in the artifact store that no prompt will ever hold (a manifest, an archive, a seed)."""

    sha256: Sha256
    """SHA-256 of the bytes."""
    size_bytes: Count
    """Length in bytes."""


TRUSTED = frozenset(
    {"goal", "instructions", "requirements", "tools", "plan", "step", "instruction", "steering", "budget", "limits"}
)
"""Slots whose texts are the author's, people's, the plan's or our own; whatever is in another slot is untrusted."""


class ContextText(Row):
    """One named place of a prompt template and what fills it."""

    slot: str = Field(max_length=40)
    """Name of the place in the template."""
    label: str = Field(default="", max_length=60)
    """Identifier that the model may cite, for example ``o17`` or ``f18``."""
    inline: str = Field(default="", max_length=2000)
    """A short text of our own; long ones are referenced."""
    ref: TextRef | None = None
    """The referenced text; exactly one of ``inline`` and ``ref`` is used, ``ref`` first."""

    @property
    def untrusted(self) -> bool:
        """True for what may quote the environment or a model: it is delimited as data in the prompt."""
        return self.slot not in TRUSTED


def estimate_tokens(text: str) -> int:
    """Return a pessimistic token count: three ASCII characters, or two thirds of another one, to a token.

    Tokenizers of current models take about four characters of English and three of code to a token. The
    same function is used by the workflow that reserves and the activity that sends, so both agree.
    """
    ascii_characters = len(text.encode("ascii", "ignore"))  # counted in C: prompts are long, and every call counts them
    others = len(text) - ascii_characters
    return -(-ascii_characters // 3) + -(-others * 3 // 2)
