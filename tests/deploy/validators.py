"""Offline validators of what is in deploy/: ``python -m tests.deploy.validators [FOLDER]``.

Prints every problem and exits with 1 where there is one. Part of ``make check``; nothing is started or downloaded.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
PROGRAMS = Path(sys.executable).parent
KUSTOMIZATION = "kustomization.yaml"


def problems(folder: Path) -> list[str]:
    """Return what the validators say against the files in ``folder``, a copy of deploy/."""
    manifests = [str(path) for path in sorted(folder.glob("kubernetes/*/*.yaml")) if path.name != KUSTOMIZATION]
    commands = [
        ("hadolint", "--no-color", "Dockerfile"),
        ("yamllint", "--strict", "--config-file", "yamllint.yaml", "--format", "parsable", "."),
        ("kubernetes-validate", "--strict", "--quiet", *manifests),
        ("podman-compose", "--dry-run", "--file", "compose.yaml", "config", "--quiet"),
    ]
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda command: _said(command, folder), commands))
    own = [*_kustomizations(folder), *_services(folder)] if not any(found) else []
    return [line for lines in found for line in lines] + own


def _said(command: tuple[str, ...], folder: Path) -> list[str]:
    """Return what a validator says where it is not content."""
    environ = {"PATH": os.environ["PATH"], "POSTGRES_PASSWORD": "p", "LEDGER_PASSWORD": "p"}
    words = [str(PROGRAMS / command[0]), *command[1:]]
    done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return []
    return [f"{command[0]}: {line}" for line in (done.stdout + done.stderr).splitlines() if line.strip()] or [
        command[0]
    ]


def _kustomizations(folder: Path) -> Iterator[str]:
    """Say which manifest no kustomization names, and which it names and is not there."""
    for path in sorted(folder.glob(f"kubernetes/*/{KUSTOMIZATION}")):
        named = set(yaml.safe_load(path.read_text())["resources"])
        there = {file.name for file in path.parent.glob("*.yaml")} - {KUSTOMIZATION}
        if named != there:
            yield f"{path.relative_to(folder)}: names {sorted(named)}, beside it are {sorted(there)}"


def _services(folder: Path) -> Iterator[str]:
    """Say which service waits for one that is not there, and which file or volume of it is missing."""
    document: dict[str, Any] = yaml.safe_load((folder / "compose.yaml").read_text())
    services, volumes = document["services"], document["volumes"]
    for name, service in services.items():
        for other in service.get("depends_on", {}):
            if other not in services:
                yield f"compose.yaml: {name} depends on {other}, which is not there"
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            if not ((folder / source).is_file() if source.startswith(".") else source in volumes):
                yield f"compose.yaml: {name} mounts {source}, which is not there"


if __name__ == "__main__":
    against = problems(Path(sys.argv[1]) if len(sys.argv) > 1 else DEPLOY)
    sys.stdout.write("".join(f"{line}\n" for line in against) or "deploy/ is valid\n")
    sys.exit(1 if against else 0)
