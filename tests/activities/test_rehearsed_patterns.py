"""The rehearsed model's patterns are its author's: a bad one ends the call, and stops nobody else."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from activities.model.port import Completion
from activities.model.rehearsed import RehearsedGateway
from schemas.errors import ModelBadRequest, RehearsalIncomplete
from schemas.models import REHEARSED, ModelChoice, Node
from schemas.rehearsal import Rehearsal, RehearsedReply
from stores.artifacts import ArtifactStore


def asked(folder: Path, prompt: str, *replies: RehearsedReply) -> str:
    """Ask the rehearsed model, and require that the loop goes on meanwhile."""
    artifacts = ArtifactStore(folder / "artifacts")
    script = artifacts.put_text(Rehearsal(replies=replies).stored("a.yaml").model_dump_json())
    completion = Completion(
        effect_id="task-t:run:7",
        node=Node.PLAN,
        system="",
        user=prompt,
        choice=ModelChoice(model=REHEARSED, rehearsal=script),
        schema=None,
        max_output_tokens=99,
        timeout_seconds=20,
    )

    async def work() -> str:
        asking = asyncio.create_task(RehearsedGateway(artifacts, folder / "record.jsonl").complete(completion))
        while not asking.done():
            await asyncio.wait_for(asyncio.sleep(0.01), 3)
        return (await asking).text

    return asyncio.run(work())


def test_a_pattern_that_never_ends_is_a_bad_request(tmp_path: Path) -> None:
    endless = RehearsedReply(node=Node.PLAN, when=(r"(a+)+\$$",), reply="x")
    with pytest.raises(ModelBadRequest, match="patterns for plan take more than 5 s"):
        asked(tmp_path, "a" * 60, endless)


def test_the_first_reply_that_fits_is_filled_with_what_was_found(tmp_path: Path) -> None:
    replies = (
        RehearsedReply(node=Node.PLAN, when=("ü",), unless=("^two$",), reply="not this"),
        RehearsedReply(node=Node.IS_STEP_DONE, reply="nor this"),
        RehearsedReply(node=Node.PLAN, when=("^(?P<word>t.o)$", "(?P<none>z)?"), reply=["{{word}}", "{{none}}", 1]),
    )
    assert asked(tmp_path, "ü \ud800\ntwo\n", *replies) == '["two", "", 1]'


def test_where_no_reply_fits_node_script_and_prompt_are_named(tmp_path: Path) -> None:
    unfit = RehearsedReply(node=Node.PLAN, when=("^never$",), reply="x")
    prompt = hashlib.sha256(b"what was asked").hexdigest()
    read = f"what was asked: `surefoot output task-t sha256:{prompt}`"
    for replies, said in (
        ((unfit, unfit), "none of its 2 replies of `node: plan` fits"),
        ((), "no reply of `node: plan`"),
    ):
        other = RehearsedReply(node=Node.REPLAN, reply="x")
        with pytest.raises(RehearsalIncomplete) as raised:
            asked(tmp_path, "what was asked", *replies, other)
        assert str(raised.value) == f"a.yaml: {said}; {read}"
    assert ArtifactStore(tmp_path / "artifacts").path(prompt).read_text() == "what was asked"
    assert not (tmp_path / "record.jsonl").exists(), "nothing was answered, so nothing is billed"
