"""Text within a bound, both ends kept: the first line says what, the last lines say why."""

from __future__ import annotations

LIMIT = 6000  # characters of one tool's answer
_TAIL = 0.4  # share of a cut text that its end gets


def bounded(text: str, limit: int = LIMIT) -> str:
    """The text, at most `limit` characters: its middle is left out, and it is said how much."""
    if len(text) <= limit:
        return text
    mark = f"\n… {len(text) - limit} characters left out …\n"
    room = limit - len(mark)
    end = int(room * _TAIL)
    return text[: room - end] + mark + text[len(text) - end :]
