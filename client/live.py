"""A task followed on the terminal: records as they come, and below them the plan and what happens now."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from client import lines
from client.follow import Look, follow
from client.streams import say
from client.tasks import Tasks
from client.views import TaskView
from schemas.base import clip
from schemas.outcome import exit_code

SPINNER_COLUMNS = 3  # itself, a space, and the last column, where some terminals wrap


async def follow_to_end(tasks: Tasks, task_id: str, *, as_json: bool, on_terminal: bool) -> TaskView:
    """Show a task until it ends and return its end."""
    looks = follow(tasks, task_id)
    if as_json:
        return await _as_json(looks)
    return await (_on_terminal(looks) if on_terminal else _plainly(looks))


async def _as_json(looks: AsyncIterator[Look]) -> TaskView:
    last: TaskView | None = None
    shown: Any = None
    tried: tuple[str, ...] = ()
    async for look in looks:
        last = look.view or last
        for event in look.events:
            _emit("event", event.model_dump(mode="json"))
        summary = look.view.summary.model_dump(mode="json") if look.view and look.view.summary else None
        if summary and summary != shown:
            _emit("summary", summary)
            shown = summary
        retrying = look.view.retrying if look.view else ()
        if retrying != tried:
            _emit("retrying", {"calls": list(retrying)})
            tried = retrying
    return _end(last)


async def _plainly(looks: AsyncIterator[Look]) -> TaskView:
    last: TaskView | None = None
    said: tuple[str, ...] = ()
    async for look in looks:
        last = look.view or last
        for line in _news(look):
            print(line, flush=True)
        standing = tuple(_standing(look))
        for line in standing:
            if line not in said:
                print(f"         ! {line}", flush=True)
        said = standing
    return _end(last)


async def _on_terminal(looks: AsyncIterator[Look]) -> TaskView:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    console = Console(highlight=False)
    last: TaskView | None = None
    spinner = Spinner("dots", text="")
    with Live(spinner, console=console, refresh_per_second=8, transient=True) as live:
        async for look in looks:
            last = look.view or last
            for line in _news(look):
                console.print(Text(lines.wrapped(line, console.width), style=_style(line), overflow="fold"))
            plan, now, standing = _panel(look, last)
            spinner.update(text=Text(clip(now, max(console.width - SPINNER_COLUMNS, lines.NARROWEST)), no_wrap=True))
            below = [Text(line, style="bold yellow") for line in standing]
            live.update(Group(Text(plan, style="cyan"), *below, spinner))
    return _end(last)


def _panel(look: Look, last: TaskView | None) -> tuple[str, str, list[str]]:
    state = last.state if last else None
    summary = last.summary if last else None
    current = summary.place.rpartition(".")[0] if summary else ""
    plan = "\n".join(lines.plan_lines(state.plans[-1], current)) if state and state.plans else "no plan yet"
    return plan, lines.status_line(summary) if summary else "starting", list(_standing(look))


def _news(look: Look) -> Iterator[str]:
    if look.gap:
        yield "         … older events are in the archive"
    for event in look.events:
        yield lines.event_line(event)


def _standing(look: Look) -> Iterator[str]:
    if look.trouble and not (look.view and look.view.ended):
        yield look.trouble
    if look.view and look.view.state and not look.view.ended:
        yield from lines.standing_lines(look.view.state)
    if look.view:
        yield from look.view.retrying


def _style(line: str) -> str:
    return {"✓": "green", "✗": "red"}.get(line[9:10], "dim" if line[9:10] == "·" else "")


def show_ending(view: TaskView, workspaces: Path, *, as_json: bool) -> int:
    """Print how a task ended and return the exit code that says the same."""
    code = lines.ending_code(view)
    if as_json:
        _emit("end", ending_json(view))
    else:
        print("\n".join(["", *lines.ending_lines(view, workspaces), lines.more_line(view)]), flush=True)
    return code


def ending_json(view: TaskView) -> dict[str, Any]:
    """Return a task's end as one JSON value."""
    outcome = view.outcome
    return {
        "id": view.id,
        "outcome": outcome.model_dump(mode="json") if outcome else None,
        "label": outcome.label if outcome else None,
        "exit_code": exit_code(outcome) if outcome else None,
        "result": view.result.model_dump(mode="json") if view.result else None,
        "ended_at": view.ended_at or None,
        "row": view.row.model_dump(mode="json") if view.row else None,
    }


def say_detached(task_id: str) -> None:
    """Say that the task goes on, and how to come back to it."""
    say(f"detached; the task goes on. surefoot watch {task_id} · surefoot cancel {task_id}")


def _emit(kind: str, value: dict[str, Any]) -> None:
    print(json.dumps({"type": kind, **value}, ensure_ascii=False), flush=True)


def _end(view: TaskView | None) -> TaskView:
    if view is None or not view.ended:
        raise RuntimeError("following stopped before the task ended")
    return view
