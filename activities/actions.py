"""Actions: claimed in the ledger, performed once, and settled whatever happens to the worker."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from activities.telemetry import count_action, execute_tool
from activities.tools.registry import TOOLS, InvalidArguments, argument_schema, parse_arguments
from activities.tools.tool import Tool, ToolContext, ToolResult
from activities.workspaces.excerpts import MAX_EXCERPT_CHARACTERS, head_and_tail, line_of
from activities.workspaces.opening import INCOMING
from activities.workspaces.processes import end_guard
from activities.workspaces.stopping import Stopped
from schemas.actions import Observation, ObservationStatus, headline
from schemas.base import rebuild
from schemas.budget import Reservation, Spend
from schemas.digest import digest_envelope, sha256_text
from schemas.effects import EffectClass, EffectKind, EffectResult, EffectState, Intent, Opened, OpenedAs, ProcessGroup
from schemas.errors import SecretUnresolved
from schemas.workspace import ActionReply, ActionRequest
from stores.artifacts import ArtifactStore
from stores.ledger import FRESH_SECONDS, Ledger

MAX_SUMMARY_CHARACTERS = 500
ONE_CALL = Spend(tool_calls=1)


@dataclass(frozen=True)
class _Prepared:
    """A request whose tool and arguments are known to be good."""

    request: ActionRequest
    tool: Tool[Any]
    arguments: BaseModel
    intent: Intent


class _Claim:
    """The tool's claim on the effect, as ``activities.tools.tool.Claim``."""

    def __init__(self, ledger: Ledger, effect_id: str, fence: int) -> None:
        self._ledger = ledger
        self._effect_id = effect_id
        self._fence = fence
        self.made = False

    async def __call__(self, *, process: ProcessGroup | None = None, marker: Mapping[str, str] | None = None) -> None:
        # the note is what tells a reconciler that the tool may have acted, so it is written for every tool
        noted = json.dumps({"claimed": "yes", **(marker or {})})
        self.made = True
        since = time.monotonic()  # the note is written only under a claim that holds
        await asyncio.to_thread(self._ledger.note, self._effect_id, self._fence, process=process, marker_json=noted)
        if time.monotonic() - since > FRESH_SECONDS:
            await asyncio.to_thread(self._ledger.confirm, self._effect_id, self._fence)


class Actions:
    """Performs and reconciles actions in the workspaces of one worker."""

    def __init__(self, ledger: Ledger, artifacts: ArtifactStore) -> None:
        """Use the worker's stores."""
        self._ledger = ledger
        self._artifacts = artifacts

    async def perform(self, request: ActionRequest, root: Path, stop: asyncio.Event) -> ActionReply:
        """Perform an action that the gate let through, once; a second attempt gets what the first recorded.

        Raises Fenced where a later attempt has taken the effect over, EffectMismatch, LedgerUnavailable,
        StorageUnavailable.
        """
        begun = await asyncio.to_thread(self._begin, request, self._ledger.open)
        if isinstance(begun, ActionReply):
            return begun
        prepared, opened = begun
        if opened.how is OpenedAs.NEW:
            return await self._act(prepared, opened.fence, root, stop)
        return await asyncio.to_thread(self._come_back, prepared, opened, root)

    async def reconcile(self, request: ActionRequest, root: Path) -> ActionReply:
        """Find out what became of an action whose attempt died, and settle it; nothing is performed.

        What the attempt left running is ended first. Raises WorkspaceUnavailable where that fails.
        """
        return await asyncio.to_thread(self._reconcile, request, root)

    def _reconcile(self, request: ActionRequest, root: Path) -> ActionReply:
        begun = self._begin(request, self._ledger.void)
        return begun if isinstance(begun, ActionReply) else self._come_back(*begun, root)

    def _begin(
        self, request: ActionRequest, claim: Callable[[Intent], Opened]
    ) -> tuple[_Prepared, Opened] | ActionReply:
        """Claim the effect of a good request; answer a bad one."""
        prepared = self._prepare(request)
        if isinstance(prepared, Observation):
            count_action(prepared)
            return self._reply(request, prepared, Spend())
        self._artifacts.check_room()  # what follows needs it: the outage ends here, or later
        return prepared, claim(prepared.intent)

    def _prepare(self, request: ActionRequest) -> _Prepared | Observation:
        action = request.action
        tool = TOOLS.get(action.tool)
        if tool is None or action.invalid:
            return _unperformed(request, ObservationStatus.INVALID, action.invalid or f"there is no tool {action.tool}")
        try:
            arguments = parse_arguments(tool, self._artifacts.get_text(action.arguments))
        except InvalidArguments as error:
            return _unperformed(request, ObservationStatus.INVALID, str(error))
        return _Prepared(request, tool, arguments, _intent(request, tool))

    async def _act(self, prepared: _Prepared, fence: int, root: Path, stop: asyncio.Event) -> ActionReply:
        request = prepared.request
        claim = _Claim(self._ledger, request.key.effect_id, fence)
        context = ToolContext(
            workspace=request.workspace,
            root=root,
            incoming=root.parent / INCOMING,
            timeout_seconds=request.timeout_seconds,
            stop=stop,
            claim=claim,
            secrets=self._artifacts.secrets,
        )
        try:
            with execute_tool(request, prepared.arguments) as call:
                result = await _execute(prepared, context)
                call.ended(result.status, result.text)
        except SecretUnresolved:  # before anything was done
            await asyncio.to_thread(self._ledger.release, request.key.effect_id, fence)
            raise
        return await asyncio.to_thread(self._conclude, prepared, fence, result, claim.made)

    def _conclude(self, prepared: _Prepared, fence: int, result: ToolResult, acted: bool) -> ActionReply:
        observation = self._observation(prepared.request, result)
        stopped = observation.status in (ObservationStatus.INTERRUPTED, ObservationStatus.TIMED_OUT)
        state = EffectState.INTERRUPTED if stopped else EffectState.DONE
        charged = ONE_CALL if acted or not stopped else Spend()
        return self._settle(prepared, fence, state, observation, charged)

    def _come_back(self, prepared: _Prepared, opened: Opened, root: Path) -> ActionReply:
        """Answer for an effect that is not ours to perform."""
        request = prepared.request
        if opened.how is OpenedAs.OVER_LIMIT:
            summary = f"not performed: it would go beyond the limit of {opened.over}"
            refused = _unperformed(request, ObservationStatus.REFUSED, summary)
            count_action(refused)
            return self._reply(request, refused, Spend(), opened.over)
        if opened.result is not None:
            return self._reply(request, _recorded(request, opened.result), opened.result.charged)
        ended = end_guard(opened.process) if opened.process else False
        status, summary, charged = _find_out(prepared, opened, root, ended)
        state = {
            ObservationStatus.SUCCEEDED: EffectState.DONE,
            ObservationStatus.VOID: EffectState.VOID,
            ObservationStatus.UNKNOWN: EffectState.UNKNOWN,
        }[status]
        return self._settle(prepared, opened.fence, state, _observe(request, status, summary), charged)

    def _settle(
        self, prepared: _Prepared, fence: int, state: EffectState, observation: Observation, charged: Spend
    ) -> ActionReply:
        result = EffectResult(state=state, charged=charged, outcome_json=observation.model_dump_json())
        totals = self._ledger.close(prepared.request.key.effect_id, fence, result)
        count_action(observation)
        return ActionReply(observation=observation, charged=charged, chain=totals.spend)

    def _reply(
        self, request: ActionRequest, observation: Observation, charged: Spend, over: str | None = None
    ) -> ActionReply:
        totals = self._ledger.totals(request.key.first_run_id)
        return ActionReply(observation=observation, charged=charged, chain=totals.spend, over=over)

    def _observation(self, request: ActionRequest, result: ToolResult) -> Observation:
        """Return the observation; its excerpt says what was done and how it ended before it quotes the output."""
        mask = self._artifacts.secrets.mask
        text = mask(result.text)
        excerpt = head_and_tail(text, MAX_EXCERPT_CHARACTERS)
        bare = _observe(request, result.status, mask(result.summary))
        headed = f"{headline(bare)}\n{excerpt}"
        with self._artifacts.together(patient=True) as together:
            return rebuild(
                bare,
                exit_code=result.exit_code,
                excerpt=together.put_text(headed) if excerpt else None,
                output=together.put_text(text) if excerpt != text else None,
            )


async def _execute(prepared: _Prepared, context: ToolContext) -> ToolResult:
    try:
        if context.stop.is_set():
            raise Stopped
        return await prepared.tool.execute(prepared.arguments, context)
    except Stopped:
        return ToolResult(ObservationStatus.INTERRUPTED, "stopped on request")
    except OSError as error:  # the disk is full, the tool's program is missing: the model may know another way
        return ToolResult(ObservationStatus.FAILED, f"the system refused: {error}")


def _intent(request: ActionRequest, tool: Tool[Any]) -> Intent:
    envelope = {
        "v": "1",
        "workflow_id": request.key.workflow_id,
        "first_run_id": request.key.first_run_id,
        "tool": tool.name,
        "tool_schema": sha256_text(json.dumps(argument_schema(tool), sort_keys=True)),
        "workspace": request.workspace.name,
        "target_kind": "cwd",
        "target": ".",
        "arguments_sha256": request.action.arguments.sha256,
        "body_sha256": sha256_text(""),
    }
    return Intent(
        key=request.key,
        kind=EffectKind.ACTION,
        name=tool.name,
        digest=digest_envelope(envelope),
        reservation=Reservation(),
        limits=request.limits,
    )


def _find_out(prepared: _Prepared, opened: Opened, root: Path, ended: bool) -> tuple[ObservationStatus, str, Spend]:
    """Judge what became of an action whose attempt left no result, by what it noted before acting."""
    marker = json.loads(opened.marker_json)
    tool = prepared.tool
    if not marker:
        return ObservationStatus.VOID, "its worker died before it began; nothing has happened", Spend()
    if tool.effect_class in (EffectClass.READ_ONLY, EffectClass.IDEMPOTENT):
        return ObservationStatus.VOID, "its worker died; it can be done again without harm", ONE_CALL
    happened = tool.happened(prepared.arguments, root, marker) if tool.happened else None
    if happened:
        return ObservationStatus.SUCCEEDED, "found done: its worker died after it had happened", ONE_CALL
    if happened is False:
        return ObservationStatus.VOID, "its worker died before it happened; the file is as before", Spend()
    process = "what still ran has been ended" if ended else "nothing of it runs any more"
    return (
        ObservationStatus.UNKNOWN,
        f"its worker died after it had begun; {process}; whether and how far it happened is not known",
        ONE_CALL,
    )


def _recorded(request: ActionRequest, result: EffectResult) -> Observation:
    if result.outcome_json == "{}":  # a row that a reconciler wrote for an effect that was never claimed
        return _observe(request, ObservationStatus.VOID, "it never began, and never will under this id")
    return Observation.model_validate_json(result.outcome_json)


def _observe(request: ActionRequest, status: ObservationStatus, summary: str) -> Observation:
    return Observation(**_identity(request), status=status, summary=line_of(summary, MAX_SUMMARY_CHARACTERS))


def _unperformed(request: ActionRequest, status: ObservationStatus, summary: str) -> Observation:
    return rebuild(_observe(request, status, summary), effect_id=None)


def _identity(request: ActionRequest) -> dict[str, Any]:
    return {
        "id": request.observation_id,
        "action_id": request.action_id,
        "tool": request.action.tool,
        "preview": request.action.preview,
        "effect_id": request.key.effect_id,
    }
