"""A disk of artifacts that is full: what was paid for or done waits for room, and nothing new begins without it."""

import threading
import time
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from activities.model.calls import SHORT_REPLY_BYTES
from activities.model.port import Completion, CompletionReply
from schemas.actions import ObservationStatus
from schemas.base import rebuild
from schemas.budget import Spend
from schemas.calls import ModelRequest, VerdictReply
from schemas.effects import CallStatus, EffectState
from schemas.errors import StorageUnavailable
from schemas.models import Node
from schemas.pricing import Usage
from stores.artifacts import ArtifactStore
from tests.activities.model_bench import CHAIN, ModelBench
from tests.activities.workspace_bench import WorkspaceBench
from tests.support.aio import run_activity
from tests.support.disks import fill, small_disk
from tests.support.processes import eventually

DISK_BYTES = 6_000_000
ANSWER = '{"reason": "seen", "citation": {"source": "o17", "quote": "the observations"}, "result": true}'
ANSWER += " " * SHORT_REPLY_BYTES  # a short one would be kept in the ledger


class FillingGateway:
    """Answers, and takes the room on the disk while it thinks."""

    def __init__(self, disk: Path) -> None:
        self.disk = disk
        self.filler: Path | None = None
        self.asked = 0

    async def complete(self, completion: Completion) -> CompletionReply:
        self.asked += 1
        self.filler = fill(self.disk)
        usage = Usage(input_tokens=100, output_tokens=20)
        return CompletionReply(text=ANSWER, reasoning="", finish_reason="stop", model="m", usage=usage)


def on_disk(home: Path) -> Path:
    """Let the artifacts of a home lie on the small disk."""
    disk = home / "disk"
    (disk / "artifacts").mkdir()
    (home / "artifacts").symlink_to(disk / "artifacts")
    return disk


def judge(bench: ModelBench, request: ModelRequest) -> VerdictReply:
    return run_activity(bench.nodes.validate_plan_step, request)


def request_of(bench: ModelBench) -> ModelRequest:
    return bench.request(Node.VALIDATE_PLAN_STEP, bench.choice("http://nowhere.invalid"))


def test_a_reply_that_was_paid_for_waits_for_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", DISK_BYTES):
        gateway = FillingGateway(on_disk(tmp_path))
        bench = ModelBench(tmp_path, gateway, patience_seconds=60)
        request = request_of(bench)
        replies: list[VerdictReply] = []
        asking = threading.Thread(target=lambda: replies.append(judge(bench, request)))
        asking.start()
        assert eventually(lambda: gateway.filler is not None and gateway.filler.exists())
        time.sleep(1.5)
        assert replies == []
        assert gateway.filler is not None
        gateway.filler.unlink()
        asking.join(30)
        (reply,) = replies
        assert reply.receipt.status is CallStatus.ANSWERED
        raw = bench.record().raw
        assert raw is not None
        assert bench.artifacts.get_text(raw) == ANSWER
        (row,) = bench.ledger.rows(CHAIN)
        assert (row.state, row.charged) == (EffectState.DONE, reply.receipt.charged)


def test_a_reply_that_never_finds_room_is_charged_once_at_most(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", DISK_BYTES):
        gateway = FillingGateway(on_disk(tmp_path))
        bench = ModelBench(tmp_path, gateway, patience_seconds=1)
        request = request_of(bench)
        with pytest.raises(ApplicationError, match="No space left") as refused:
            judge(bench, request)
        assert refused.value.type == StorageUnavailable.__name__
        with pytest.raises(ApplicationError, match="No space left"):  # nothing more is sent while there is no room
            judge(bench, rebuild(request, key=rebuild(request.key, seq=2)))
        assert gateway.asked == 1
        assert [row.state for row in bench.ledger.rows(CHAIN)] == [EffectState.INTENT]
        assert gateway.filler is not None
        gateway.filler.unlink()
        assert judge(bench, request).receipt.status is CallStatus.LOST
        assert gateway.asked == 1


def test_what_a_command_said_waits_for_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", DISK_BYTES):
        disk = on_disk(tmp_path)
        bench = WorkspaceBench(tmp_path, patience_seconds=60)
        command = f"cat /dev/zero > {disk}/filler 2>/dev/null; echo said"
        releaser = threading.Thread(target=lambda: release(disk / "filler"))
        releaser.start()
        reply = bench.perform(bench.request("run", command=command))
        releaser.join(30)
        assert reply.observation.status is ObservationStatus.SUCCEEDED
        assert bench.shown(reply.observation) == "said\n"
        assert reply.charged == Spend(tool_calls=1)


def release(filler: Path) -> None:
    """Give the room back a while after it was taken."""
    assert eventually(lambda: filler.exists() and filler.stat().st_size > DISK_BYTES // 2)
    time.sleep(2)
    filler.unlink(missing_ok=True)


def test_nothing_is_done_without_room_and_the_reconciler_waits_for_it_too(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", DISK_BYTES):
        disk = on_disk(tmp_path)
        bench = WorkspaceBench(tmp_path)
        request = bench.request("run", command="echo x >> log")
        filler = fill(disk)
        for attempt in (bench.perform, bench.reconcile):
            with pytest.raises(ApplicationError, match="No space left"):
                attempt(request)
        assert bench.ledger.rows(CHAIN) == []
        filler.unlink()
        assert bench.reconcile(request).observation.status is ObservationStatus.VOID
        assert not (bench.root / "log").exists()


def test_looking_for_room_leaves_nothing_behind(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "artifacts")
    store.check_room()
    assert list(store.root.iterdir()) == []
