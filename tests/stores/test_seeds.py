"""A folder that cannot be a seed is refused as that, whatever is wrong with it."""

from pathlib import Path

import pytest

from schemas.errors import SeedInvalid
from stores.seeds import pack_seed


@pytest.mark.parametrize("links", [{"a": "a"}, {"a": "b", "b": "a"}], ids=["of one", "of two"])
def test_a_loop_of_links_is_refused(tmp_path: Path, links: dict[str, str]) -> None:
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    with pytest.raises(SeedInvalid, match="leads nowhere"):
        pack_seed(tmp_path)


def test_a_folder_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    gone = Path("/proc/self/fd")  # the listing's own descriptor is closed again when the link is followed
    assert gone.is_dir()
    with pytest.raises(SeedInvalid):
        pack_seed(gone)
