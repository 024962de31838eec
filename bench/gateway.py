"""A model that answers at once, or after a set time, from inside the worker; and what a bench asks of its worker.

It is no rehearsed model: that one matches its patterns in a process of its own for each reply, which would be most of
what is measured.
"""

import asyncio
import json
import re
from itertools import count, cycle
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from activities.model.port import Completion, CompletionReply
from bench.marks import Marks
from schemas.base import Frozen
from schemas.models import Node
from schemas.pricing import Usage

MODEL = "bench/scripted"
USAGE = Usage(input_tokens=1200, output_tokens=80)
FRAME = re.compile(r"^<<<DATA (f\d+) ", re.MULTILINE)
QUOTE = "in the workspace"

# As long as models write: what history and prompts carry would otherwise be smaller than it ever is.
REASON = (
    "The frame after the actions lists the notes with the size that was written, the difference shows the new line, "
    "and the output of the action says that the file was replaced, so that what the instruction asks for can be seen."
)
THOUGHT = (
    "The notes of this part are not there yet; the file is small, so I write it as a whole rather than edit it, with "
    "the line that tells this part from the others, and look at the result afterwards."
)
INSTRUCTION = (
    "Write this part of the notes to notes.txt, with a line that no other part has. When it is done, the list of files "
    "shows notes.txt with its new size, and the difference shows the line."
)
SUMMARY = "notes.txt was written as a whole with the line of this part; the frame and the difference show it. " * 2


class Play(Frozen):
    """What a bench asks of its worker, as JSON in the environment variable BENCH."""

    marks: str
    """File for the marks."""
    server_pid: int
    """The server, whose CPU time is noted."""
    marked: tuple[str, ...] = ()
    """Activities that are noted; all model calls where it is empty."""
    seconds: float = 0.0
    """Time that every reply takes."""
    steps: Annotated[int, Field(ge=1, le=12)] = 10
    """Steps of every plan."""
    proposals: Annotated[int, Field(ge=1)] = 1
    """Proposals in an iteration, of one action each."""
    judgements: Annotated[tuple[bool, ...], Field(min_length=1)] = (True,)
    """Whether an iteration is judged done, one after the other, over and over."""
    command: str | None = None
    """Command that every action runs; None: it writes a small file."""
    heartbeat_seconds: int | None = None
    """Heartbeat time-out in place of the contract's."""


class ScriptedGateway:
    """Answers every node of the graph, so that a task goes on until its bounds."""

    def __init__(self, play: Play) -> None:
        """Answer as ``play`` says."""
        self._play = play
        self._marks = Marks(Path(play.marks), play.server_pid, play.marked)
        self._proposals, self._judgements = count(1), cycle(play.judgements)

    async def complete(self, completion: Completion) -> CompletionReply:
        """Note the call, wait as long as the play says, and answer."""
        self._marks.mark(completion.node.value, completion.effect_id)
        answer = self._answer(completion)
        if self._play.seconds:
            await asyncio.sleep(self._play.seconds)
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return CompletionReply(text=text, reasoning="", finish_reason="stop", model=MODEL, usage=USAGE)

    def _answer(self, completion: Completion) -> Any:
        match completion.node:
            case Node.PLAN | Node.REPLAN:
                titles = [f"Write part {number} of the notes" for number in range(1, self._play.steps + 1)]
                steps = [{"title": title, "instruction": INSTRUCTION, "requirements": []} for title in titles]
                return {"why": THOUGHT, "steps": steps}
            case Node.IS_STEP_DONE:
                return {"reason": REASON, "citation": None, "result": False}
            case Node.PROPOSE_ACTION:
                more = next(self._proposals) % self._play.proposals != 0
                return {"thought": THOUGHT, "actions": [self._action(completion.effect_id)], "more": more}
            case Node.VALIDATE_PLAN_STEP:
                return self._verdict(completion, next(self._judgements))
            case Node.IS_STEP_DONE_BY_VALIDATION:
                return self._verdict(completion, True)
            case _:
                return SUMMARY

    def _action(self, effect_id: str) -> dict[str, Any]:
        if self._play.command is not None:
            return {"tool": "run", "arguments": {"command": self._play.command}}
        return {"tool": "write_file", "arguments": {"path": "notes.txt", "content": f"part of {effect_id}\n"}}

    def _verdict(self, completion: Completion, result: bool) -> dict[str, Any]:
        """Cite the newest frame of the prompt: a yes without words that stand there would count as a no."""
        *_, frame = FRAME.findall(completion.user)
        return {"reason": REASON, "citation": {"source": frame, "quote": QUOTE}, "result": result}
