"""What the commands name that no test can run, since they need a cluster or an image registry, is there."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.deploy.validators import DEPLOY
from tests.docs.commands import ROOT, blocks

README = "deploy/README.md"
TEMPORAL = str(Path(sys.executable).parent / "temporal")
NEXT_BUILD = {"deploy/surefoot-worker-2"}  # the build that the section makes
KINDS = {"Deployment": "deploy/", "PodDisruptionBudget": "pdb/", "StatefulSet": ""}


def commands() -> list[list[str]]:
    """Return the words of every command that the page shows and no test runs."""
    texts = [block.text for block in blocks(README) if block.language == "sh" and block.reason is not None]
    lines = "\n".join(texts).replace("\\\n", " ").splitlines()
    found = [shlex.split(line, comments=True) for line in lines]
    assert len(list(filter(None, found))) > 8
    return [words for words in found if words]


def objects() -> set[str]:
    """Return what the kustomizations make, as kubectl names it, pods of a StatefulSet by their number."""
    found: set[str] = set()
    for path in sorted(DEPLOY.glob("kubernetes/*/kustomization.yaml")):
        made = yaml.safe_load(path.read_text())
        for name in made["resources"]:
            for item in yaml.safe_load_all((path.parent / name).read_text()):
                pod = "-0" if item["kind"] == "StatefulSet" else ""
                kind = KINDS.get(item["kind"])
                if kind is not None:
                    found.add(f"{kind}{item['metadata']['name']}{made.get('nameSuffix', '')}{pod}")
    return found


@pytest.mark.parametrize("words", commands(), ids=lambda words: " ".join(words)[:80])
def test_every_file_and_every_object_that_a_command_names_is_there(words: list[str]) -> None:
    for flag in ("--file", "--kustomize"):
        if flag in words:
            assert (ROOT / words[words.index(flag) + 1]).exists()
    for verb in ("exec", "delete"):
        if words[0] == "kubectl" and verb in words:
            named = words[words.index(verb) + 1 : words.index("--") if "--" in words else None]
            assert set(named) <= objects() | NEXT_BUILD
    scenarios = [word for word in words if word.startswith("/opt/surefoot/")]
    assert all((ROOT / word.removeprefix("/opt/surefoot/")).exists() for word in scenarios)


def inner(program: str) -> Iterator[list[str]]:
    """Yield the words of each command of one program that is run inside a container, or named in the text."""
    for words in commands():
        if program in words[1:]:
            yield words[words.index(program) :]
    for quoted in re.findall(rf"`{program} ([^`]+)`", (ROOT / README).read_text("utf-8")):
        yield [program, *shlex.split(quoted)]


@pytest.mark.parametrize("words", list(inner("temporal")), ids=lambda words: " ".join(words)[:80])
def test_every_option_of_temporals_program_is_one(words: list[str]) -> None:
    first_option = next(index for index, word in enumerate(words) if word.startswith("--"))
    verbs = words[1:first_option]
    done = subprocess.run([TEMPORAL, *verbs, "--help"], capture_output=True, text=True, timeout=60, check=True)
    whole = subprocess.run([TEMPORAL, "options"], capture_output=True, text=True, timeout=60, check=True)
    for option in (word for word in words if word.startswith("--")):
        assert re.search(rf"{option}\b", done.stdout + whole.stdout), f"temporal {' '.join(verbs)} has no {option}"


def test_the_secret_and_the_settings_have_the_names_under_which_pods_ask_for_them() -> None:
    (secret,) = [words for words in commands() if words[3:6] == ["create", "secret", "generic"]]
    manifests = "".join(path.read_text() for path in DEPLOY.glob("kubernetes/*/*.yaml"))
    assert f"name: {secret[6]}" in manifests
    assert "SUREFOOT_DATABASE_URL" in {word.partition("=")[2].partition("=")[0] for word in secret}
