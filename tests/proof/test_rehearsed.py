"""A rehearsed reply cannot know what happens at run time: it finds it in the prompt, or the task fails."""

import secrets
import shutil
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from client.freezing import freeze
from client.scenarios import load
from client.submit import start as submit
from schemas.checks import CommandCheck, Requirement
from schemas.outcome import OutcomeKind, StopReason
from schemas.state import TaskResult
from schemas.task import Bounds, TaskSpec
from stores.artifacts import ArtifactStore
from stores.settings import Settings
from tests.proof.bench import final_state, one_step, rehearsed_spec, run, with_client
from tests.support.server import DevServer
from tests.support.tasks import WorkerProcess, commands, plan, reply, workspace_spec

SCENARIOS = Path(__file__).parent.parent.parent / "scenarios"
CHECK = 'test "$(cat answer.txt 2>/dev/null)" = "$(cat secret.txt)"'
PROGRAM = f'{CHECK} && echo right && exit 0; echo "failure: the answer should be $(cat secret.txt)"; exit 1\n'


def guessing(settings: Settings, secret: str, answer: str) -> TaskSpec:
    """Return a task that guesses wrong, fails with a text that holds ``secret``, replans and answers ``answer``."""
    fails = r"^failure: the answer should be (?P<wanted>\w+)$"
    script = one_step(
        "Guess",
        reply("replan", plan("Write {{wanted}}"), when=[fails]),
        reply("propose_action", commands(f"echo {answer} > answer.txt"), when=[r"^v2\.s1: Write (?P<wanted>\w+)$"]),
        reply("propose_action", commands("echo a guess > answer.txt; sh check.sh"), when=[r"^v1\.s1: Guess$"]),
    )
    check = CommandCheck(kind="command", run="sh check.sh", prints="right")
    return rehearsed_spec(
        settings,
        script,
        requirements=(Requirement(id="right", text="The answer is right", check=check),),
        bounds=Bounds(max_plan_versions=2, max_plan_step_iterations=1),
        workspace=workspace_spec(settings, files={"secret.txt": secret, "check.sh": PROGRAM}),
    )


def test_a_replan_answers_a_failure_that_is_random_in_every_run(home: DevServer, serving: WorkerProcess) -> None:
    secrets_of_runs = [secrets.token_hex(6) for _ in range(2)]
    for secret in secrets_of_runs:
        end = run(home.settings, guessing(home.settings, secret, "{{wanted}}"))
        assert end.outcome.kind is OutcomeKind.FINISHED, end.outcome
        assert (end.root / "answer.txt").read_text() == f"{secret}\n"
        state = final_state(home.settings, end)
        assert [(version.version, version.steps[0].title) for version in state.plans] == [
            (1, "Guess"),
            (2, f"Write {secret}"),
        ]


def test_a_script_that_answers_another_failure_does_not_finish(home: DevServer, serving: WorkerProcess) -> None:
    end = run(home.settings, guessing(home.settings, secrets.token_hex(6), secrets.token_hex(6)))
    assert end.outcome.kind is OutcomeKind.STOPPED_INCOMPLETE
    assert end.outcome.reason is StopReason.MAX_PLAN_VERSIONS


def run_scenario(settings: Settings, path: Path) -> TaskResult:
    """Submit a scenario as the command line does, and wait for its end."""
    spec = freeze(load(path), settings, ArtifactStore(settings.artifacts_dir))

    async def work(client: Client) -> TaskResult:
        return await (await submit(client, settings, spec)).result()

    return with_client(settings, work)


@pytest.mark.slow
def test_the_scenario_finishes_verified(home: DevServer, serving: WorkerProcess) -> None:
    result = run_scenario(home.settings, SCENARIOS / "fix-failing-test.yaml")
    assert (result.outcome.kind, result.outcome.verified) == (OutcomeKind.FINISHED, True)


MUTATIONS = {
    "another bug": ("if people < 1:", "if people < 0:"),
    "a bug elsewhere": ("    share = total // people\n", "    share = total // (people + 1)\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_a_bug_that_the_script_does_not_mend_ends_not_finished(
    home: DevServer, serving: WorkerProcess, tmp_path: Path, mutation: tuple[str, str]
) -> None:
    shutil.copytree(SCENARIOS, tmp_path, dirs_exist_ok=True)
    program = tmp_path / "fix-failing-test" / "splitting.py"
    assert mutation[0] in program.read_text()
    program.write_text(program.read_text().replace(*mutation))
    soak = tmp_path / "fix-failing-test" / "soak.py"
    soak.write_text(soak.read_text().replace("else 6.0", "else 0.5"))
    with pytest.raises(WorkflowFailureError) as raised:
        run_scenario(home.settings, tmp_path / "fix-failing-test.yaml")
    assert isinstance(raised.value.cause, ApplicationError)
    assert raised.value.cause.type == "RehearsalIncomplete"
