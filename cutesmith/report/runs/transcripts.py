"""A few lines of a session's transcript: what the model said and called, turn by turn, first and last."""

from __future__ import annotations

import json

MOST_LINES, FIRST_LINES = 14, 6
LONGEST = 240  # characters


def excerpt(transcript: str) -> list[str]:
    """One line a turn of a transcript.jsonl, the middle of a long one left out; [] for other text."""
    lines: list[str] = []
    for line in transcript.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a line that a crash cut
        if not isinstance(event, dict):
            continue
        if event.get("kind") == "reply":
            blocks = [block for block in event.get("content") or () if isinstance(block, dict)]
            said = " ".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
            calls = ", ".join(str(block.get("name")) for block in blocks if block.get("type") == "tool_use")
            parts = [" ".join(said.split())[:LONGEST], f"→ {calls}" if calls else ""]
            lines.append(f"turn {event.get('turn')}: {' '.join(filter(None, parts))}")
        elif event.get("kind") == "ended":
            lines.append(f"ended: {event.get('ending')}: {event.get('reason')}"[:LONGEST])
    if len(lines) <= MOST_LINES:
        return lines
    left_out = len(lines) - MOST_LINES
    return [*lines[:FIRST_LINES], f"… {left_out} more …", *lines[FIRST_LINES - MOST_LINES :]]
