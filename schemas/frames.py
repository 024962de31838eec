"""Frames: what the environment looks like at one point in time."""

from pydantic import Field

from schemas.base import Count, Frozen, Sha256
from schemas.texts import BlobRef, TextRef


class Frame(Frozen):
    """A text frame of a workspace: its files with excerpts, and what changed since the frame before."""

    id: str = Field(max_length=20)
    """As ``f18``."""
    fingerprint: Sha256
    """Digest of paths, modes and contents: equal ones hint that nothing happened, never that a step is done."""
    text: TextRef
    """List of files with excerpts of the ones changed last, bounded: what a judge reads."""
    difference: TextRef | None = None
    """Unified difference to the frame before, bounded; None where nothing changed or there is none before."""
    manifest: BlobRef
    """Paths, sizes and digests of all files, as JSON, for the next difference."""
    files: Count
    """Number of files."""
    skipped_files: Count = 0
    """Files beyond the frame's bounds, which were not read."""
