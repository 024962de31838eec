"""Events in lines: what they are shown as on a terminal."""

from client.lines import event_line, wrapped
from schemas.state import Event, EventKind, Source


def observation(text: str, kind: EventKind = EventKind.OBSERVATION) -> Event:
    """Return an observation of that text, or another event."""
    return Event(
        id="e7",
        kind=kind,
        source=Source.ENVIRONMENT,
        visible=True,
        place="v1.s1.i1.a2",
        at="2026-11-30T21:33:57.120+00:00",
        text=text,
        ok=False,
    )


def test_how_an_action_ended_is_shown_however_long_its_command_is() -> None:
    line = event_line(observation(f"run {'x' * 2000}: failed. exit code 1: no such file"))
    assert line.startswith("21:33:57 ✗ observation   v1.s1.i1.a2  run xxx")
    assert line.endswith("…: failed. exit code 1: no such file")
    assert len(line) < 150


def test_an_observation_that_names_no_end_is_shown_as_it_is() -> None:
    assert event_line(observation("nothing is known")).endswith("  nothing is known")


def test_of_the_prompts_their_number_is_shown_and_no_digest() -> None:
    text = "goal: Write out.txt. Templates: by hand. Templates: plan 0f3b2a9c1d4e, replan 1a2b3c4d5e6f"
    line = event_line(observation(text, EventKind.SYSTEM_PROMPT))
    assert line.endswith("  2 prompt templates frozen for this task; goal: Write out.txt. Templates: by hand.")
    one = event_line(observation("goal: x Templates: plan 0f3b2a9c1d4e", EventKind.SYSTEM_PROMPT))
    assert one.endswith("  1 prompt template frozen for this task; goal: x")


def test_a_long_line_is_broken_at_words_and_goes_on_below_its_sign() -> None:
    lines = wrapped(event_line(observation("run make: failed. " + "word " * 40)), 80).splitlines()
    assert len(lines) > 2
    assert all(len(line) <= 80 for line in lines)
    assert all(line.startswith("           word") for line in lines[1:])
