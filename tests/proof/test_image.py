"""The image, built and run by Debian's Docker engine: a worker that is not root, and a task that it finishes.

The base is **imported**: debootstrap makes it from Debian's archive, because no image registry is used. The build has
no network; its wheels lie in the build context. Skipped, with the reason, where no engine can be started.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stores.running import SERVER_FILE, ServerRecord, read_record
from tests.proof.bench import serving_home
from tests.support.processes import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parent.parent.parent
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
BASE = "debian-imported:bookworm"
IMAGE = "surefoot:proof"
INDEX = "http://packages.invalid/simple"  # must leave no trace in the image


@dataclass(frozen=True)
class Docker:
    """A Docker engine of our own."""

    folder: Path

    def run(self, *words: str, check: bool = True, stdin: Any = None) -> "subprocess.CompletedProcess[str]":
        """Run the client."""
        environ = {
            "PATH": PATH,
            "HOME": str(self.folder),
            "DOCKER_HOST": f"unix://{self.folder}/socket",
            "DOCKER_BUILDKIT": "0",
        }
        done = subprocess.run(["docker", *words], env=environ, stdin=stdin, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or not check, (
            f"docker {' '.join(words)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
        return done

    def inspect(self, name: str) -> dict[str, Any]:
        """Return what the engine knows of an image or container."""
        found: list[dict[str, Any]] = json.loads(self.run("inspect", name).stdout)
        return found[0]


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    for program in ("dockerd", "docker", "debootstrap"):
        if shutil.which(program, path=PATH) is None:
            pytest.skip(f"NOT PROVEN: {program} is missing; apt-get install docker.io debootstrap")
    if os.geteuid() != 0:
        pytest.skip("NOT PROVEN: a Docker engine of our own needs root")
    folder = Path(tempfile.mkdtemp(prefix="sf-"))  # short: a socket's path has 108 bytes
    words = ["dockerd", "--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")]
    words += [
        "--pidfile",
        str(folder / "pid"),
        "--host",
        f"unix://{folder}/socket",
        "--bridge=none",
        "--iptables=false",
    ]
    with (folder / "log").open("wb") as log:
        engine = subprocess.Popen(words, env={"PATH": PATH}, stdout=log, stderr=log, start_new_session=True)
    try:
        started = Docker(folder)
        if not eventually(lambda: started.run("info", check=False).returncode == 0, 60):
            pytest.skip(f"NOT PROVEN: no Docker engine starts here: {(folder / 'log').read_text()[-1000:]}")
        yield started
    finally:
        engine.send_signal(signal.SIGTERM)
        engine.wait(60)
        for line in Path("/proc/self/mounts").read_text().splitlines():
            if line.split()[1].startswith(f"{folder}/"):  # the engine leaves its network namespaces mounted
                subprocess.run(["umount", line.split()[1]], check=True)
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def image(docker: Docker) -> str:
    """Build the image on an imported Debian, without any network."""
    system = docker.folder / "system"
    packages = "python3,python3-venv,bubblewrap,tini,ca-certificates"
    words = ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(system)]
    made = subprocess.run(words, env={**os.environ, "PATH": PATH}, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"NOT PROVEN: no base can be made from Debian's archive: {made.stdout[-500:]}")
    with subprocess.Popen(["tar", "-C", str(system), "-c", "."], stdout=subprocess.PIPE) as packed:
        docker.run("import", "-", BASE, stdin=packed.stdout)
    context = docker.folder / "context"
    copy_tracked(context)
    lock = context / "requirements" / "production.lock"
    wheels = ["--dest", str(context / "deploy" / "wheelhouse"), "--requirement", str(lock)]
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "--no-deps", *wheels]
    subprocess.run(download, check=True, capture_output=True)
    arguments = ["--build-arg", f"BASE={BASE}", "--build-arg", f"PIP_INDEX_URL={INDEX}"]
    docker.run(
        *("build", "--network", "none", *arguments, "--file", str(context / "deploy" / "Dockerfile")),
        *("--tag", IMAGE, str(context)),
    )
    return IMAGE


def copy_tracked(folder: Path) -> None:
    """Copy what belongs to the project."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def test_the_image_is_not_root_and_names_no_package_index(docker: Docker, image: str) -> None:
    config = docker.inspect(image)["Config"]
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["tini", "--", "python", "-m", "workers.main"]
    assert INDEX not in docker.run("history", "--no-trunc", image).stdout + json.dumps(config)
    docker.run("run", "--rm", "--network", "none", "--entrypoint", "test", image, "!", "-e", "/build")


def test_a_container_that_is_not_root_finishes_a_task_and_stops_gracefully(
    docker: Docker, image: str, tmp_path: Path
) -> None:
    with serving_home(tmp_path) as server:
        record = read_record(server.settings.run_dir / SERVER_FILE, ServerRecord)
        assert record is not None
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        docker.run(
            *("run", "--detach", "--name", "worker", "--network", "host", "--volume", "surefoot:/var/lib/surefoot"),
            *("--env", f"TEMPORAL_ADDRESS={record.address}", "--env", f"SUREFOOT_HEALTH__ADDRESS=127.0.0.1:{port}"),
            *("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true"),
            *("--security-opt", "seccomp=unconfined", "--security-opt", "systempaths=unconfined"),
            image,
        )
        try:
            healthy = eventually(lambda: docker.inspect("worker")["State"]["Health"]["Status"] == "healthy", 120)
            assert healthy, docker.run("logs", "worker").stderr
            assert docker.run("exec", "worker", "id", "--user").stdout.strip() == "10001"
            # exit code 0: verified
            docker.run("exec", "worker", "surefoot", "run", "/opt/surefoot/scenarios/hello-file.yaml")
            docker.run("stop", "--time", "60", "worker")
            assert docker.inspect("worker")["State"]["ExitCode"] == 0, docker.run("logs", "worker").stderr
        finally:
            docker.run("rm", "--force", "worker")
