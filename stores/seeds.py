"""Seeds: the files that a workspace starts with, as one deterministic tar."""

import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from schemas.errors import SeedInvalid

MAX_SEED_BYTES = 64 * 1024 * 1024
IGNORED_NAMES = frozenset({"__pycache__", ".git"})
FIXED_MTIME_SECONDS = 1_000_000_000  # 2001: the same folder gives the same tar; zip files refuse times before 1980


def pack_seed(folder: Path) -> bytes:
    """Return the folder's files, folders and inner links as a tar: the same content always gives the same bytes.

    Raises SeedInvalid for a link that leads out of the folder, for anything but files, folders and links, for
    more than 64 MiB, and for a folder that is not there or cannot be read.
    """
    if not folder.is_dir():
        raise SeedInvalid(f"{folder} is not a folder")
    buffer = io.BytesIO()
    try:
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in _walk(folder):
                _add(archive, folder, path)
                if buffer.tell() > MAX_SEED_BYTES:
                    raise SeedInvalid(f"{folder} holds more than {MAX_SEED_BYTES // 2**20} MiB")
    except OSError as error:
        raise SeedInvalid(f"{folder} cannot be read: {error}") from error
    return buffer.getvalue()


def seed_files(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of all that is in a seed; of a link its target."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            yield member.name, content.read() if content else member.linkname.encode("utf-8", "surrogateescape")


def unpack_seed(data: bytes, folder: Path) -> None:
    """Unpack a seed into an empty folder; nothing is written outside it. Raises SeedInvalid."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            members = archive.getmembers()
            size = sum(member.size for member in members)  # a sparse member's real size, whatever the tar's own size
            if size > MAX_SEED_BYTES:
                raise SeedInvalid(f"the seed unpacks to {size:,} bytes, more than {MAX_SEED_BYTES:,}")
            # links come last: nothing is written through one
            for member in sorted(members, key=lambda member: member.issym()):
                _extract(archive, member, folder)
    except (tarfile.TarError, OSError, ValueError) as error:
        raise SeedInvalid(f"the seed cannot be unpacked: {error}") from error
    for member in members:
        if member.issym():
            _inner_target(folder, folder / member.name)


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write one member. Python's own extraction filters are missing before 3.11.4, which Debian 12 does not have."""
    name = Path(member.name)
    if name.is_absolute() or ".." in name.parts:
        raise SeedInvalid(f"the seed holds {member.name}, which is outside the workspace")
    path = folder / name
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        path.symlink_to(member.linkname)
        return
    content = archive.extractfile(member) if member.isreg() else None
    if content is None:
        raise SeedInvalid(f"the seed holds {member.name}, which is neither a file nor a folder nor a link")
    with content, path.open("xb") as file:
        shutil.copyfileobj(content, file)
    path.chmod(0o755 if member.mode & 0o100 else 0o644)
    os.utime(path, (member.mtime, member.mtime))


def _walk(folder: Path) -> list[Path]:
    found: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.name not in IGNORED_NAMES:
            found.append(path)
            if path.is_dir() and not path.is_symlink():
                found += _walk(path)
    return found


def _add(archive: tarfile.TarFile, folder: Path, path: Path) -> None:
    info = tarfile.TarInfo(str(path.relative_to(folder)))
    info.mtime = FIXED_MTIME_SECONDS
    if path.is_symlink():
        info.type = tarfile.SYMTYPE
        info.linkname = _inner_target(folder, path)
        archive.addfile(info)
    elif path.is_dir():
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(info)
    elif path.is_file():
        data = path.read_bytes() if path.stat().st_size <= MAX_SEED_BYTES else None
        if data is None:
            raise SeedInvalid(f"{path} holds more than {MAX_SEED_BYTES // 2**20} MiB")
        info.size = len(data)
        info.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
        archive.addfile(info, io.BytesIO(data))
    else:
        raise SeedInvalid(f"{path} is neither a file nor a folder nor a link")


def _inner_target(folder: Path, link: Path) -> str:
    target = str(link.readlink())
    try:
        inside = not Path(target).is_absolute() and (link.parent / target).resolve().is_relative_to(folder.resolve())
    except (RuntimeError, OSError) as error:  # Python 3.11 and 3.12 raise RuntimeError for a loop
        raise SeedInvalid(f"{link} is a link that leads nowhere: {target}") from error
    if not inside:
        raise SeedInvalid(f"{link} is a link that leads out of {folder}: {target}")
    return target
