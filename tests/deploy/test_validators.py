"""The validators of deploy/ find mistakes, and none in what we deliver."""

import shutil
from pathlib import Path

import pytest

from tests.deploy.validators import DEPLOY, problems

MISTAKES = {
    "a command of the image that no shell understands": ("Dockerfile", "ENTRYPOINT", "ENTRY POINT", "hadolint"),
    "a folder from nowhere": ("Dockerfile", "WORKDIR /var/lib/surefoot", "WORKDIR surefoot", "hadolint"),
    "a key twice": ("compose.yaml", "    read_only: true\n", "    read_only: true\n    read_only: true\n", "yamllint"),
    "a field that Kubernetes does not know": (
        "kubernetes/worker/worker.yaml",
        "terminationGracePeriodSeconds",
        "terminationGraceSeconds",
        "kubernetes-validate",
    ),
    "a probe without a port": (
        "kubernetes/base/workspace.yaml",
        "httpGet: {path: /ready, port: health}",
        "httpGet: {path: /ready}",
        "kubernetes-validate",
    ),
    "a manifest that nobody applies": ("kubernetes/base/kustomization.yaml", "  - storage.yaml\n", "", "storage.yaml"),
    "a password that nobody sets": ("compose.yaml", "LEDGER_PASSWORD:?", "OTHER_PASSWORD:?", "podman-compose"),
    "a service that waits for nobody": ("compose.yaml", "      temporal: {cond", "      temporel: {cond", "temporel"),
    "a script that is not there": ("compose.yaml", "./temporal/schema.sh", "./temporal/scheme.sh", "scheme.sh"),
}


def test_what_we_deliver_is_valid() -> None:
    assert problems(DEPLOY) == []


@pytest.mark.parametrize(("name", "before", "after", "finder"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_found(tmp_path: Path, name: str, before: str, after: str, finder: str) -> None:
    folder = tmp_path / "deploy"
    shutil.copytree(DEPLOY, folder, ignore=shutil.ignore_patterns("wheelhouse"))
    text = (folder / name).read_text()
    assert before in text
    (folder / name).write_text(text.replace(before, after, 1))
    assert any(finder in problem for problem in problems(folder)), problems(folder)
