"""The rehearsed model: a script answers. It never invents: where no reply fits, the task fails and says so."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pydantic import JsonValue, ValidationError

from activities.model.port import Completion, CompletionReply
from schemas.base import clip
from schemas.errors import ModelBadRequest, RehearsalIncomplete
from schemas.models import REHEARSED
from schemas.pricing import Usage, cost_microusd
from schemas.rehearsal import PLACE, RehearsedReply, StoredRehearsal
from schemas.texts import estimate_tokens
from stores.artifacts import ArtifactStore

MATCH_CPU_SECONDS = 5.0

# the limit holds even where the worker that started it has been killed
_FIRST_FIT = """
import json, re, signal, sys
signal.setitimer(signal.ITIMER_VIRTUAL, float(sys.argv[1]))
candidates, prompt = json.load(sys.stdin)
search = lambda pattern: re.search(pattern, prompt, re.MULTILINE)
for number, when, unless in candidates:
    groups = {}
    for match in map(search, when):
        if match is None:
            break
        groups.update({name: value or "" for name, value in match.groupdict().items()})
    else:
        if not any(map(search, unless)):
            break
else:
    number, groups = 0, {}
print(json.dumps([number, groups]))
"""


class RehearsedGateway:
    """Answers completions from the script that the run carries; it remembers nothing between requests.

    Patterns are matched in a process of their own: a bad one would hold the interpreter's lock, and stop the worker.

    Before it answers it appends the request to its own record, which is what a provider's bill would be.
    """

    def __init__(self, artifacts: ArtifactStore, record: Path) -> None:
        """Read scripts from ``artifacts`` and append what was answered to ``record``."""
        self._artifacts = artifacts
        self._record_path = record

    async def complete(self, completion: Completion) -> CompletionReply:
        """Return the first reply that fits.

        Raises RehearsalIncomplete where none does; ModelBadRequest where the script is missing or malformed, or its
        patterns take too long on this prompt.
        """
        script = await asyncio.to_thread(self._script, completion)
        found = await asyncio.to_thread(_matching, script, completion)
        if found is None:
            raise RehearsalIncomplete(await asyncio.to_thread(self._lacking, script, completion))
        number, text = found
        usage = Usage(
            input_tokens=estimate_tokens(completion.system) + estimate_tokens(completion.user),
            output_tokens=estimate_tokens(text),
        )
        await asyncio.to_thread(self._record, completion, usage, number)
        await asyncio.sleep(script.delay_seconds)
        return CompletionReply(text=text, reasoning="", finish_reason="stop", model=REHEARSED, usage=usage)

    def _lacking(self, script: StoredRehearsal, completion: Completion) -> str:
        """Keep what was asked, and tell whoever writes the script where to read it and what to add."""
        node, asked = completion.node.value, self._artifacts.put_text(completion.user).sha256
        task_id = completion.effect_id.rsplit(":", 2)[0]
        of_node = sum(candidate.node is completion.node for candidate in script.replies)
        lacks = f"none of its {of_node} replies of `node: {node}` fits" if of_node else f"no reply of `node: {node}`"
        return f"{script.file}: {lacks}; what was asked: `surefoot output {task_id} sha256:{asked}`"

    def _script(self, completion: Completion) -> StoredRehearsal:
        ref = completion.choice.rehearsal
        if ref is None:
            raise ModelBadRequest("the rehearsed model has no script: name it in the scenario as `rehearsal`")
        try:
            return StoredRehearsal.model_validate_json(self._artifacts.get_text(ref))
        except ValidationError as error:
            raise ModelBadRequest(clip(f"the rehearsal script is malformed: {error}")) from None

    def _record(self, completion: Completion, usage: Usage, number: int) -> None:
        price = completion.choice.price
        line = {
            "effect_id": completion.effect_id,
            "node": completion.node.value,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "microusd": cost_microusd(usage, price) if price else 0,
            "at": time.time(),
            "reply": number,
        }
        self._record_path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._record_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, (json.dumps(line) + "\n").encode())  # one write: several workers append to it
            os.fsync(file)
        finally:
            os.close(file)


def _matching(script: StoredRehearsal, completion: Completion) -> tuple[int, str] | None:
    candidates = {
        number: candidate
        for number, candidate in enumerate(script.replies, start=1)
        if candidate.node is completion.node
    }
    found = _first_fit(candidates, completion) if candidates else None
    if found is None:
        return None
    number, groups = found
    reply = _filled(candidates[number].reply, groups)
    return number, reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False)


def _first_fit(candidates: dict[int, RehearsedReply], completion: Completion) -> tuple[int, dict[str, str]] | None:
    """Return the number of the first candidate that fits and what its named groups found, or None."""
    patterns = [(number, candidate.when, candidate.unless) for number, candidate in candidates.items()]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _FIRST_FIT, str(MATCH_CPU_SECONDS)],
        input=json.dumps([patterns, completion.user]).encode(),
        capture_output=True,
        check=False,
    )
    if done.returncode == -signal.SIGVTALRM:
        raise ModelBadRequest(
            f"the rehearsal's patterns for {completion.node.value} take more than {MATCH_CPU_SECONDS:g} s on its prompt"
        )
    if done.returncode:
        raise ModelBadRequest(clip(f"the rehearsal's patterns fail: {done.stderr.decode(errors='replace')}"))
    number, groups = json.loads(done.stdout)
    return (number, groups) if number else None


def _filled(value: JsonValue, groups: dict[str, str]) -> JsonValue:
    if isinstance(value, str):
        return PLACE.sub(lambda place: groups[place[1]], value)
    if isinstance(value, dict):
        return {name: _filled(item, groups) for name, item in value.items()}
    return [_filled(item, groups) for item in value] if isinstance(value, list) else value
