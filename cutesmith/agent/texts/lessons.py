"""What lines of work learnt, as text for other lines: their notes, their results, and what was refused."""

from __future__ import annotations

from collections.abc import Sequence

from cutesmith.agent.outcome import AddNote, effects_of
from cutesmith.agent.session_state import SessionState
from cutesmith.agent.transcript import Event

NOTES = 6  # of each line, the latest
CHARACTERS = 6000
IDEAS = 20  # that failed, on all lines together


def lessons_of(events: Sequence[Event], state: SessionState, lines: Sequence[int]) -> str:
    """Markdown, the best line first, at most CHARACTERS long; "" when nothing was learnt."""
    parts = [part for line in lines if (part := _of_line(events, state, line))]
    share = CHARACTERS // max(len(parts), 1)
    told = "\n".join(part if len(part) <= share else f"{part[: share - 2]}…\n" for part in parts)
    if failed := failed_ideas(state):
        told += "\n".join(["### Ideas that failed", *failed]) + "\n"
    return told


def failed_ideas(state: SessionState) -> list[str]:
    """What the notes of any line announced and the judge then refused or found slower, the latest IDEAS of them.

    A change is the idea of the text that was judged next on its line.
    """
    best_before: dict[int, float] = {}
    found: list[str] = []
    for noted in state.notes:
        change = " ".join(noted.fields.get("change", "").split())
        tried = state.kernels.get(noted.sha256)
        if not change or tried is None:
            continue
        if not tried.grade and tried.verdicts:
            worst = next((v for v in reversed(list(tried.verdicts.values())) if v["exit_code"] != 0), None)
            if worst is not None:
                found.append(
                    f"- line {noted.line}: {change}: {worst['stage']} {worst['status']}, {worst['summary'][:160]}"
                )
        elif tried.median_us is not None:
            before = best_before.get(noted.line)
            if before is not None and tried.median_us > before:
                found.append(f"- line {noted.line}: {change}: {tried.median_us:.2f} µs, {before:.2f} µs before it")
            best_before[noted.line] = min(before or tried.median_us, tried.median_us)
    return list(dict.fromkeys(found))[-IDEAS:]


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
