"""Looking at the environment: frames, and the free checks of the requirements."""

from collections.abc import Iterable

from schemas import contract
from schemas.base import rebuild
from schemas.checks import CheckResult, RequirementState, longest_seconds
from schemas.frames import Frame
from schemas.state import EventKind, Ref
from schemas.workspace import RunChecksRequest, SnapshotRequest
from workflows.calls import Calls


class Looking:
    """Takes frames and runs checks; neither costs anything but time."""

    def __init__(self, calls: Calls) -> None:
        """Look through the run's calls."""
        self.calls = calls
        self.journal = calls.journal

    async def frame(self) -> Frame:
        """Take a frame; it becomes t1 where there is none yet, otherwise t2."""
        frames, workspace = self.journal.state.frames, self.journal.state.workspace
        assert workspace is not None, "a frame is taken only of an open workspace"
        request = SnapshotRequest(
            workspace=workspace.ref,
            frame_id=self.journal.next_id("f"),
            before=frames.t1.manifest if frames.t1 else None,
        )
        frame = await self.calls.run(contract.SNAPSHOT, request)
        frames = self.journal.state.frames
        self.journal.change(frames=rebuild(frames, **({"t2": frame} if frames.t1 else {"t1": frame})))
        return frame

    async def check_if_changed(self, frame: Frame) -> None:
        """Run the requirement checks, unless they ran at a frame like this one."""
        if self.journal.state.frames.checked != frame.fingerprint:
            await self.check(frame)

    async def check(self, frame: Frame) -> None:
        """Run the requirement checks."""
        state, spec = self.journal.state, self.journal.spec
        assert state.workspace is not None, "checks run only in an open workspace"
        request = RunChecksRequest(workspace=state.workspace, requirements=spec.requirements)
        seconds = longest_seconds(item.check for item in spec.requirements)
        reply = await self.calls.run(contract.RUN_CHECKS, request, extra_seconds=seconds)
        state = self.journal.state
        self.journal.change(
            requirements=with_results(state.requirements, reply.results),
            frames=rebuild(state.frames, checked=frame.fingerprint),
        )
        for result in reply.results:
            verdict = "holds" if result.met else "does not hold"
            text = f"{result.id} {verdict}: {result.detail}"
            self.journal.note(EventKind.CHECKS, text, ok=result.met, visible=True, refs={Ref.FRAME: frame.id})


def with_results(known: tuple[RequirementState, ...], results: Iterable[CheckResult]) -> tuple[RequirementState, ...]:
    """Return the requirements with their newest results; the first result of all is kept as ``met_before``."""
    by_id = {result.id: result for result in results}
    return tuple(
        rebuild(
            item,
            met_before=by_id[item.id].met if item.met is None else item.met_before,
            met=by_id[item.id].met,
            detail=by_id[item.id].detail,
            output=by_id[item.id].output,
            whole=by_id[item.id].whole,
            checked=item.checked + 1,
        )
        if item.id in by_id
        else item
        for item in known
    )
