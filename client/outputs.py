"""Whole texts that a task refers to: what a command printed, what a check saw, what a judge read, what was asked."""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from client.events import events_of
from client.frames import frame_in_history
from client.problems import BadInput
from client.session import Records, with_records
from client.streams import say
from client.tasks import LEDGER_AWAY
from client.views import TaskView
from schemas.actions import Observation, headline
from schemas.checks import CheckResult, RequirementState
from schemas.effects import CallRecord, EffectKind
from schemas.lenient import read_reply
from schemas.outcome import EXIT_VERIFIED
from schemas.state import Event, EventKind, Ref
from schemas.texts import BlobRef, TextRef
from stores.artifacts import ArtifactStore
from stores.records import EffectRow
from stores.settings import Settings

ARTIFACT = re.compile(r"sha256:([0-9a-f]{64})")
NAMED = 20


@dataclass(frozen=True)
class Found:
    """A text that was found."""

    about: str
    """What it is, for people."""
    text: str
    """All of it."""
    ref: TextRef | BlobRef | None = None
    """Its artifact, where it has one of its own."""


def output(settings: Settings, task_id: str, name: str, as_json: bool) -> int:
    """Print the whole text that ``name`` stands for. Raises BadInput where the task has none of that name."""
    artifact = ARTIFACT.fullmatch(name)
    if artifact:  # needs nobody but the store
        ref = BlobRef(sha256=artifact[1], size_bytes=0)
        text = ArtifactStore(settings.artifacts_dir).get_bytes(ref).decode("utf-8", "replace")
        return _print(task_id, name, Found("artifact", text, ref), as_json)

    async def work(records: Records) -> int:
        view = await records.tasks.look(task_id)
        found = await _Outputs(records, view).find(name)
        return _print(task_id, name, found, as_json)

    return with_records(settings, work)


def _print(task_id: str, name: str, found: Found, as_json: bool) -> int:
    if as_json:
        sha256 = f"sha256:{found.ref.sha256}" if found.ref else None
        known = {"id": task_id, "name": name, "about": found.about, "artifact": sha256, "text": found.text}
        print(json.dumps(known, ensure_ascii=False))
    else:
        print(found.text, end="" if found.text.endswith("\n") else "\n")
    return EXIT_VERIFIED


class _Outputs:
    """Finds texts of one task."""

    def __init__(self, records: Records, view: TaskView) -> None:
        self._records = records
        self._view = view
        self._artifacts = records.artifacts

    async def find(self, name: str) -> Found:
        """Return the text of that name. Raises BadInput, ArtifactMissing."""
        found = self._of_check(name)
        if found is None and re.fullmatch(r"f[0-9]+", name):
            found = await self._of_frame(name)
        if found is None and re.fullmatch(r"o?[0-9]+", name):
            found = await asyncio.to_thread(self._of_effect, name)
        if found is None:
            known = "; ".join(await asyncio.to_thread(lambda: [*self._names()]))
            raise BadInput(f"{self._view.id} has no output {name}; there are {known}")
        return found

    def _of_check(self, name: str) -> Found | None:
        state, result, row = self._view.state, self._view.result, self._view.row
        evaluator = result.evaluator if result else row.evaluator if row else ()
        checks: Sequence[RequirementState | CheckResult] = (*(state.requirements if state else ()), *evaluator)
        for check in checks:
            if check.id == name:
                ref = check.whole or check.output
                about = f"output of the latest check of {name}"
                return self._text(about, ref) if ref else Found(f"what {name} found; it printed nothing", check.detail)
        return None

    async def _of_frame(self, name: str) -> Found | None:
        state = self._view.state
        kept = (state.frames.t1, state.frames.t2) if state else ()
        frame = next((frame for frame in kept if frame and frame.id == name), None)
        if frame is None and self._records.client:
            frame = await frame_in_history(self._records.client, self._view, name)
        return self._text(f"frame {name}, as judges read it", frame.text) if frame else None

    def _of_effect(self, name: str) -> Found | None:
        """Look into the state, then at what the ledger keeps of every effect."""
        observations = self._view.state.observations if self._view.state else ()
        observation = next((seen for seen in observations if seen.id == name), None)
        if observation:
            return self._of_observation(observation)
        for row in self._rows():
            if row.effect_id.rpartition(":")[2] == name and row.kind is EffectKind.MODEL:
                return self._of_call(name, row)
            seen = _observation(row)
            if seen and name in (seen.id, row.effect_id.rpartition(":")[2]):
                return self._of_observation(seen)
        event = next((event for event in self._observed() if event.refs[Ref.OBSERVATION] == name), None)
        return Found(f"{name}, which has no output", event.text) if event else None

    def _rows(self) -> Sequence[EffectRow]:
        try:
            return self._records.tasks.effects(self._view.first_run_id)
        except LEDGER_AWAY as error:
            say(f"older outputs cannot be found: {error}")
            return ()

    def _of_call(self, name: str, row: EffectRow) -> Found | None:
        record = read_reply(CallRecord, row.outcome_json).value
        about = f"reply of the model to {row.name}, effect {name}"
        if record and record.text:
            return Found(about, record.text)
        return self._text(about, record.raw) if record and record.raw else None

    def _of_observation(self, seen: Observation) -> Found:
        about = f"output of {headline(seen)}"
        if seen.output:
            return self._text(about, seen.output)
        if seen.excerpt is None:
            return Found(f"{seen.id}, which has no output", headline(seen))
        # the excerpt says first what was done; short outputs are kept only there
        return Found(about, self._artifacts.get_text(seen.excerpt).removeprefix(f"{headline(seen)}\n"))

    def _text(self, about: str, ref: TextRef) -> Found:
        return Found(about, self._artifacts.get_text(ref), ref)

    def _observed(self) -> Iterator[Event]:
        for event in events_of(self._view, self._records.archive).events:
            if event.kind is EventKind.OBSERVATION and Ref.OBSERVATION in event.refs:
                yield event

    def _names(self) -> Iterator[str]:
        state, result, row = self._view.state, self._view.result, self._view.row
        evaluator = result.evaluator if result else row.evaluator if row else ()
        seen = [event.refs[Ref.OBSERVATION] for event in self._observed()]
        frames = [frame.id for frame in (state.frames.t1, state.frames.t2) if frame] if state else []
        for what, ids in (
            ("requirements", [item.id for item in state.requirements] if state else []),
            ("checks of the evaluator", [item.id for item in evaluator]),
            ("observations", seen),
            ("frames", frames),
        ):
            if ids:
                yield f"{what} {'… ' if len(ids) > NAMED else ''}{', '.join(ids[-NAMED:])}"
        yield "the numbers of effects in `surefoot show`; sha256:… of any artifact"


def _observation(row: EffectRow) -> Observation | None:
    if row.kind is not EffectKind.ACTION or row.outcome_json == "{}":
        return None
    return read_reply(Observation, row.outcome_json).value
