"""A process that stores artifacts until it is killed: ``python -m tests.stores.artifact_process <root>``."""

import sys
from pathlib import Path

from stores.artifacts import ArtifactStore
from tests.stores.intents import say


def main(root: str) -> None:
    """Store blobs of 1 MB; the first ones are the same in every process."""
    store = ArtifactStore(Path(root))
    for number in range(1_000_000):
        store.put_bytes(number.to_bytes(8, "big") * 131_072)
        say(number)


if __name__ == "__main__":
    main(sys.argv[1])
