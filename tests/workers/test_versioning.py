"""A rolling change of workers: a task ends on the build that it began on, new tasks begin on the current one."""

import asyncio
import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from typer.testing import CliRunner

from client.builds import Build, Polling, needed_builds
from client.main import app
from schemas.outcome import OutcomeKind
from schemas.task import Bounds, Caps, TaskSpec
from stores.artifacts import ArtifactStore
from stores.settings import Settings
from tests.proof.bench import Handle, ended, happened, serving_home, start, with_client
from tests.support.probing import is_ready
from tests.support.processes import eventually
from tests.support.server import DevServer
from tests.support.tasks import WorkerProcess, commands, plan, rehearsed_choice, reply, task_spec, verdict, worker
from workers.server import find_server

NAME = "surefoot"
DRAINAGE = (  # Temporal looks for the last open task of a version every few minutes
    *("--dynamic-config-value", 'matching.wv.VersionDrainageStatusRefreshInterval="1s"'),
    *("--dynamic-config-value", 'matching.wv.VersionDrainageStatusVisibilityGracePeriod="1s"'),
)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[DevServer]:
    with serving_home(tmp_path, server_flags=DRAINAGE) as server:
        yield server


class Deployment:
    """The versions of the workers, as operators see and change them: with Temporal's command line."""

    def __init__(self, settings: Settings, client: Client) -> None:
        self._words = [str(find_server(settings)), "worker", "deployment"]
        self._where = ["--address", client.service_client.config.target_host, "--output", "json"]

    def _run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [*self._words, *words, "--deployment-name", NAME, *self._where]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def make_current(self, build_id: str) -> None:
        """Let new tasks begin on this build; it has to poll first."""
        words = ("set-current-version", "--build-id", build_id, "--yes")
        assert eventually(lambda: self._run(*words).returncode == 0, 60), self._run(*words).stderr

    def drainage(self, build_id: str) -> str:
        """Return whether open tasks still need this build."""
        done = self._run("describe-version", "--build-id", build_id)
        assert done.returncode == 0, done.stderr
        described: dict[str, Any] = json.loads(done.stdout)
        return str(described.get("drainageInfo", {}).get("drainageStatus", ""))


@contextlib.contextmanager
def build(settings: Settings, build_id: str, *flags: str) -> Iterator[WorkerProcess]:
    """Run a worker of a build."""
    version = {"SUREFOOT_DEPLOYMENT__NAME": NAME, "SUREFOOT_DEPLOYMENT__BUILD_ID": build_id}
    with worker(settings, *flags, **version, SUREFOOT_HEALTH__ADDRESS="127.0.0.1:0") as running:
        assert eventually(lambda: is_ready(running.said["health"]))
        yield running


def patient(settings: Settings) -> TaskSpec:
    """Return a task that waits for a file ``go`` in its workspace, and then needs several runs of its chain."""
    command = "echo x >> tries; while ! [ -e go ]; do sleep 0.1; done; [ $(wc -l < tries) -lt 6 ] || touch out.txt"
    script = [
        reply("plan", plan("Write out.txt")),
        reply("is_step_done", verdict(False)),
        reply("propose_action", commands(command)),
        reply("validate_plan_step", verdict(False)),
        reply("summarize_actions", "rehearsed"),
    ]
    choice = rehearsed_choice(ArtifactStore(settings.artifacts_dir), script)
    bounds = Bounds(max_plan_step_iterations=10)
    return task_spec(settings, choice, bounds=bounds, caps=Caps(events=100))


def quick(settings: Settings) -> TaskSpec:
    """Return a task of one command."""
    script = [
        reply("plan", plan("Write out.txt")),
        reply("is_step_done", verdict(False)),
        reply("propose_action", commands("touch out.txt")),
    ]
    return task_spec(settings, rehearsed_choice(ArtifactStore(settings.artifacts_dir), script))


async def builds_of(client: Client, handle: Handle) -> list[str]:
    """Return the build of each run of a task's chain."""
    runs = [item async for item in client.list_workflows(f"WorkflowId = '{handle.id}'")]
    described = [await client.get_workflow_handle(handle.id, run_id=run.run_id).describe() for run in runs]
    infos = [item.raw_description.workflow_execution_info.versioning_info for item in described]
    return [info.deployment_version.build_id for info in infos]


def test_running_tasks_finish_on_their_build_and_new_ones_begin_on_the_current_one(home: DevServer) -> None:
    settings = home.settings

    async def change(client: Client) -> None:
        deployment = Deployment(settings, client)
        with build(settings, "build-a") as old:
            deployment.make_current("build-a")
            running = await start(client, settings, patient(settings))
            await happened(lambda: list(settings.workspaces_dir.glob("*/files/tries")))
            with build(settings, "1.10"):
                deployment.make_current("1.10")
                new = await ended(await start(client, settings, quick(settings)))
                assert new.outcome.kind is OutcomeKind.FINISHED
                assert await builds_of(client, new.handle) == ["1.10"]
                assert deployment.drainage("build-a") == "draining"
                next(settings.workspaces_dir.glob("*/files/tries")).with_name("go").touch()
                end = await ended(running)
                assert end.outcome.kind is OutcomeKind.FINISHED, end.outcome
                builds = await builds_of(client, running)
                assert len(builds) > 1
                assert set(builds) == {"build-a"}
                await happened(lambda: deployment.drainage("build-a") == "drained")
                assert is_ready(old.said["health"])
                assert old.stop() == 0
                last = await ended(await start(client, settings, quick(settings)))
                assert last.outcome.kind is OutcomeKind.FINISHED

    with_client(settings, change)


def test_a_task_whose_build_is_gone_says_so_and_how_it_gets_off_it(home: DevServer) -> None:
    settings = home.settings

    def said(*command: str) -> str:
        done = CliRunner().invoke(app, ["--home", str(settings.home), *command])
        return done.stdout + done.stderr

    async def change(client: Client) -> None:
        deployment = Deployment(settings, client)
        with build(settings, "build-b"):
            waiting = await start(client, settings, quick(settings))
            told = await asyncio.to_thread(said, "show", waiting.id)
            assert (
                "only build build-b of surefoot polls surefoot, and new tasks begin on no build yet: temporal" in told
            )
            command = "set-current-version --address .* --deployment-name surefoot --build-id build-b"
            assert re.search(command, told)
            assert re.search(command, await asyncio.to_thread(said, "doctor"))
            deployment.make_current("build-b")
            assert (await ended(waiting)).outcome.kind is OutcomeKind.FINISHED
            pinned = await start(client, settings, patient(settings))
            await happened(lambda: list(settings.workspaces_dir.glob("*/files/tries")))
            assert "build      build build-b of surefoot polls" in await asyncio.to_thread(said, "doctor")
            async with asyncio.timeout(60):  # Temporal's lists come late
                while await needed_builds(client, "surefoot") != {Build(NAME, "build-b"): 1}:  # noqa: ASYNC110 (nobody tells)
                    await asyncio.sleep(0.1)
            assert await needed_builds(client, "another") == {}
        override = f"update-options --address .* --workflow-id {pinned.id} --versioning-override-behavior auto_upgrade"
        for verb in ("show", "pause"):
            told = await asyncio.to_thread(said, verb, pinned.id)
            assert "no worker of build build-b of surefoot answers for it, and it stays on that build" in told
            assert re.search(override, told)

    with_client(settings, change)


def test_which_builds_do_not_fit_what_tasks_need() -> None:
    one, two = Build("surefoot", "1"), Build("surefoot", "2")

    def by(*builds: Build, unversioned: bool = False, current: Build | None = None) -> Build | None:
        return Polling("q", unversioned, frozenset(builds), current).waiting_to_be_current

    assert by() is None
    assert by(one, two) == two
    assert by(one, two, current=one) is None
    assert by(two, current=one) == two
    assert by(one, unversioned=True) is None, "new tasks begin there"


def test_a_host_of_workspaces_may_stay_unversioned(home: DevServer) -> None:
    settings = home.settings

    async def run(client: Client) -> None:
        with worker(settings, "--role", "workspace"), build(settings, "build-a", "--role", "home"):
            Deployment(settings, client).make_current("build-a")
            end = await ended(await start(client, settings, quick(settings)))
            assert end.outcome.kind is OutcomeKind.FINISHED
            assert await builds_of(client, end.handle) == ["build-a"]

    with_client(settings, run)


def test_without_a_deployment_workers_take_tasks_at_once(home: DevServer) -> None:
    settings = home.settings

    async def run(client: Client) -> None:
        with worker(settings):
            end = await ended(await start(client, settings, quick(settings)))
            assert await builds_of(client, end.handle) == [""]

    with_client(settings, run)
