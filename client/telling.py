"""The commands that send a running task a message: pause, resume, cancel, steer."""

import asyncio
import getpass
import json
import time
import uuid

from pydantic import ValidationError

from client.problems import BadInput
from client.session import Session, say, wake_embedded, with_session
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


def tell(settings: Settings, task_id: str, name: SignalName, text: str, by: str | None, as_json: bool) -> int:
    """Send a message, wait until the task shows that it was received, and print what came of it.

    A refused message counts as bad input. Where no worker answers in time the message is still delivered later.
    Raises BadInput, before anything is started or sent, for a message that no task can take.
    """
    note = _note(name, text, by or _user())
    wake_embedded(settings)

    async def work(session: Session) -> int:
        await session.tasks.send(task_id, name, note)
        answer, accepted = await _answer(session, task_id, note)
        later = LATER.get(name, "").format(id=task_id) if accepted else ""
        if as_json:
            shown = {"id": task_id, "message": name.value, "sender_id": note.id, "accepted": accepted, "answer": answer}
            print(json.dumps(shown), flush=True)
        else:
            print(f"{task_id}: {answer}" + (f"; {later}" if later else ""), flush=True)
        return EXIT_BAD_INPUT if accepted is False else EXIT_VERIFIED

    return with_session(settings, work)


def _note(name: SignalName, text: str, by: str) -> Note:
    if name is SignalName.STEER and not text.strip():
        raise BadInput("the text is empty; say what the next decision should know")
    try:
        return Note(text=text, by=by, id=uuid.uuid4().hex)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise BadInput(f"{FIELDS[str(wrong['loc'][0])]}: {wrong['msg']}") from error


async def _answer(session: Session, task_id: str, note: Note) -> tuple[str, bool | None]:
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        view = await session.tasks.look(task_id)
        if view.state and note.id in view.state.seen_ids:
            return _recorded(view.state, note)
        if view.ended:
            label = view.outcome.label if view.outcome else "unknown"
            return f"the task ended as {label} before it saw the message", False
        await asyncio.sleep(POLL_SECONDS)
    say("sent, but no worker has taken it yet; it will be received when one polls")
    return "sent", None


def _recorded(state: AgentState, note: Note) -> tuple[str, bool | None]:
    for event in reversed(state.events):
        if event.kind is EventKind.MESSAGE and event.refs.get(Ref.SENDER) == note.id:
            return event.text.rpartition("→ ")[2], event.ok
    return "received", None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no entry in the user database, as in some containers
        return "unknown"
