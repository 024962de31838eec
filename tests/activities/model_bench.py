"""A model node with everything around it real: ledger file, artifacts, prompts, and a model service on a port."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from activities.model.litellm_gateway import LiteLlmGateway
from activities.model.port import Gateway, Gateways
from activities.model.rehearsed import RehearsedGateway
from activities.nodes import ModelNodes
from activities.prompting import SLOTS, template
from schemas.base import rebuild
from schemas.budget import Limits, Reservation
from schemas.calls import ModelRequest, RepairRequest
from schemas.effects import CallRecord
from schemas.ids import CallKey
from schemas.models import ModelChoice, Node
from schemas.pricing import Price, ceiling_microusd
from schemas.sizing import prompt_tokens
from schemas.texts import ContextText
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from stores.secrets import Secrets

PRICE = Price(input_microusd_per_mtok=3_000_000, output_microusd_per_mtok=15_000_000)
LABELS = {
    "frame": "f18",
    "frame_before": "f17",
    "difference": "f18-diff",
    "observations": "o17",
    "checks": "tests-pass",
}
CHAIN = "first-run"


class ModelBench:
    """Builds requests and runs them."""

    def __init__(
        self,
        home: Path,
        models: Gateway | None = None,
        environment: dict[str, str] | None = None,
        secrets: Secrets | None = None,
        patience_seconds: float = 0.0,
    ) -> None:
        self.artifacts = ArtifactStore(home / "artifacts", secrets=secrets, patience_seconds=patience_seconds)
        self.ledger = Ledger(f"sqlite:///{home}/surefoot.db")
        self.logs = home / "logs"
        gateways = Gateways(
            rehearsed=RehearsedGateway(self.artifacts, self.logs / "rehearsed-model.jsonl"),
            models=models if models is not None else LiteLlmGateway(environment or {}, self.artifacts.secrets),
        )
        self.nodes = ModelNodes(gateways, self.ledger, self.artifacts)

    def choice(self, url: str, **changes: Any) -> ModelChoice:
        """Return a choice of the stub at ``url``."""
        return rebuild(ModelChoice(model="openai/stub", api_base=url, price=PRICE, timeout_seconds=20), **changes)

    def request(
        self,
        node: Node,
        choice: ModelChoice,
        seq: int = 1,
        texts: dict[str, str] | None = None,
        repair: RepairRequest | None = None,
        limits: Limits | None = None,
        tools: tuple[str, ...] = (),
    ) -> ModelRequest:
        """Return a request of ``node`` whose slots hold ``texts``, or a word each."""
        ref = self.artifacts.put_text(template(node))
        context = tuple(self._context(SLOTS[node], texts or {}))
        tokens = prompt_tokens(ref, context, repair, len(tools))
        output = choice.max_output_tokens
        money = ceiling_microusd(tokens, output, choice.price) if choice.price else 0
        return ModelRequest(
            key=CallKey(workflow_id="task-1", run_id="run-1", first_run_id=CHAIN, seq=seq),
            node=node,
            place="v1.s1.i1",
            choice=choice,
            template=ref,
            context=context,
            tools=tools,
            max_actions=3 if node is Node.PROPOSE_ACTION else 0,
            repair=repair,
            reservation=Reservation(microusd=money, input_tokens=tokens, output_tokens=output),
            limits=limits or Limits(),
        )

    def record(self) -> CallRecord:
        """Return what the ledger keeps of the last call."""
        return CallRecord.model_validate_json(self.ledger.rows(CHAIN)[-1].outcome_json)

    def _context(self, slots: Iterable[str], texts: dict[str, str]) -> Iterable[ContextText]:
        for slot in sorted(slots):
            text = texts.get(slot, f"the {slot}")
            yield ContextText(
                slot=slot,
                label=LABELS.get(slot, ""),
                ref=self.artifacts.put_text(text),
            )
