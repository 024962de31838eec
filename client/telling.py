"""The commands that send a running task a message: pause, resume, cancel, steer."""

import asyncio
import getpass
import json
import time
import uuid
from dataclasses import dataclass

from pydantic import ValidationError

from client.embedded import server_answers
from client.problems import BadInput, PrerequisiteError
from client.session import Session, with_session
from client.streams import say
from client.tasks import Tasks
from client.views import NOT_RUNNING
from schemas.messages import Note, SignalName
from schemas.outcome import EXIT_BAD_INPUT, EXIT_VERIFIED
from schemas.state import AgentState, EventKind, Ref
from stores.settings import Settings

ANSWER_SECONDS = 5.0
POLL_SECONDS = 0.1
LATER = {
    SignalName.PAUSE: "nothing new starts before `surefoot resume {id}`",
    SignalName.RESUME: "the task goes on",
    SignalName.CANCEL: "the task will end as CANCELLED",
}
"""What follows from an accepted message, where the task's own answer does not say it."""
FIELDS = {"text": "the text", "by": "--by"}


@dataclass(frozen=True)
class Answer:
    """What came of a message."""

    accepted: bool | None
    """Whether it changed anything; None where no worker has taken it in time, and it is received later."""
    text: str
    """The task's answer, as ``paused`` or ``refused: already paused``."""
    why_not: str = ""
    """Why no worker has taken it, as far as known."""


def tell(settings: Settings, task_id: str, name: SignalName, text: str, by: str | None, as_json: bool) -> int:
    """Send a message, wait until the task shows that it was received, and print what came of it.

    A refused message counts as bad input. Where no worker answers in time the message is still delivered later.
    Raises BadInput, before anything is started or sent, for a message that no task can take.
    """
    note = compose(name, text, by)
    if not server_answers(settings):
        raise PrerequisiteError(NOT_RUNNING)

    async def work(session: Session) -> int:
        answer = await deliver(session.tasks, task_id, name, note)
        if answer.accepted is None:
            say(f"sent, and received once a worker takes it{f': {answer.why_not}' if answer.why_not else ''}")
        later = LATER.get(name, "").format(id=task_id) if answer.accepted else ""
        if as_json:
            known = {"id": task_id, "message": name.value, "sender_id": note.id}
            print(json.dumps({**known, "accepted": answer.accepted, "answer": answer.text}), flush=True)
        else:
            print(f"{task_id}: {answer.text}" + (f"; {later}" if later else ""), flush=True)
        return EXIT_BAD_INPUT if answer.accepted is False else EXIT_VERIFIED

    return with_session(settings, work)


def compose(name: SignalName, text: str, by: str | None) -> Note:
    """Return the argument of a message, with an id of its own. Raises BadInput for what no task can take."""
    if name is SignalName.STEER and not text.strip():
        raise BadInput("the text is empty; say what the next decision should know")
    try:
        return Note(text=text, by=by or _user(), id=uuid.uuid4().hex)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise BadInput(f"{FIELDS[str(wrong['loc'][0])]}: {wrong['msg']}") from error


async def deliver(tasks: Tasks, task_id: str, name: SignalName, note: Note) -> Answer:
    """Send a message and wait a few seconds for what the task makes of it. Raises UnknownTask, BadInput."""
    await tasks.send(task_id, name, note)
    deadline = time.monotonic() + ANSWER_SECONDS
    why_not = ""
    while time.monotonic() < deadline:
        view = await tasks.look(task_id)
        why_not = view.why_not
        if view.state and note.id in view.state.seen_ids:
            return _recorded(view.state, note)
        if view.ended:
            label = view.outcome.label if view.outcome else "unknown"
            return Answer(False, f"the task ended as {label} before it saw the message")
        await asyncio.sleep(POLL_SECONDS)
    return Answer(None, "sent", why_not)


def _recorded(state: AgentState, note: Note) -> Answer:
    for event in reversed(state.events):
        if event.kind is EventKind.MESSAGE and event.refs.get(Ref.SENDER) == note.id:
            return Answer(event.ok, event.text.rpartition("→ ")[2])
    return Answer(None, "received")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no entry in the user database, as in some containers
        return "unknown"
