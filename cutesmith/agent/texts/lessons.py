"""What lines of work learnt, as text for other lines: their notes, their results, and what was refused."""

from __future__ import annotations

from collections.abc import Sequence

from cutesmith.agent.outcome import AddNote, effects_of
from cutesmith.agent.session_state import SessionState
from cutesmith.agent.transcript import Event

NOTES = 6  # of each line, the latest
CHARACTERS = 6000


def lessons_of(events: Sequence[Event], state: SessionState, lines: Sequence[int]) -> str:
    """Markdown, the best line first, at most CHARACTERS long; "" when nothing was learnt."""
    parts = [part for line in lines if (part := _of_line(events, state, line))]
    share = CHARACTERS // max(len(parts), 1)
    return "\n".join(part if len(part) <= share else f"{part[: share - 2]}…\n" for part in parts)


def _of_line(events: Sequence[Event], state: SessionState, line: int) -> str:
    best, failure = state.best(line), state.failures.get(line)
    effects = [effect for event in events if event["line"] == line for effect in effects_of(event)]
    notes = [effect.fields for effect in effects if isinstance(effect, AddNote)][-NOTES:]
    learnt = ["- " + "; ".join(f"{name}: {' '.join(text.split())}" for name, text in note.items()) for note in notes]
    if failure is not None:
        learnt.append(f"- last failure, {failure['stage']} {failure['status']}: {failure['summary'][:300]}")
    if best is None and not learnt:
        return ""
    result = best.state if best else "nothing verified yet"
    if best and best.median_us is not None:
        result += f", {best.median_us:.2f} µs"
    return "\n".join([f"### Line {line}: {result}", *learnt]) + "\n"
