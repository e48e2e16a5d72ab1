"""Pure functions over texts for the file tools: numbered views, differences, and finding what an edit meant."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from cutesmith.agent.texts.bounded_text import bounded

LONGEST_LINE = 400
VIEW_CHARACTERS = 16_000
LEFT_OUT = "\n  …    lines "  # lines of a file start with their number
_HEAD = 0.7  # share of a view that is cut that its beginning gets
_MOST_CLOSE = 3
_SEARCHED = 5000  # lines in which close ones are looked for
_LONGER = 10  # characters by which a line may be longer than the one that is sought: a comment may follow
_LIKENED = 200  # characters of a line that count for its likeness: the time grows with their square
_COMPARED = 8000  # lines of two texts: their difference may take time that grows with the square too


def numbered(text: str, first: int = 1, last: int | None = None, *, limit: int = VIEW_CHARACTERS) -> str:
    """Lines `first` to `last` (from 1, both included) with their numbers, at most `limit` characters.

    When they are more, beginning and end are kept and the lines left out between are named.
    """
    lines = text.splitlines()
    shown = [f"{n:>5}  {_short(line)}" for n, line in enumerate(lines[first - 1 : last], first)]
    if sum(map(len, shown)) + len(shown) <= limit:
        return "\n".join(shown)
    head = _fitting(shown, int(limit * _HEAD))
    tail = _fitting(shown[::-1], limit - int(limit * _HEAD))
    left = f"{LEFT_OUT[1:]}{first + head} to {first + len(shown) - tail - 1} left out"
    return "\n".join([*shown[:head], left, *shown[len(shown) - tail :]])


def _fitting(lines: Sequence[str], limit: int) -> int:
    """How many of the first lines fit."""
    for count, line in enumerate(lines):
        limit -= len(line) + 1
        if limit < 0:
            return count
    return len(lines)


def _short(line: str) -> str:
    return (
        line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} … [{len(line) - LONGEST_LINE} more characters]"
    )


def difference(old: str, new: str, name: str, *, most: int = 60) -> str:
    """How many lines changed, and a unified diff with two lines of context, its middle left out beyond `most` lines."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > _COMPARED:
        return f"{len(after)} lines in place of {len(before)}"
    lines = list(difflib.unified_diff(before, after, name, name, n=2, lineterm=""))[2:]
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    if len(lines) > most:
        half = most // 2
        lines = [*lines[:half], f"… {len(lines) - 2 * half} lines of the difference left out …", *lines[-half:]]
    return bounded("\n".join([f"{added} added, {removed} removed", *map(_short, lines)])).rstrip()


def occurrences(text: str, part: str) -> list[int]:
    """The line numbers, from 1, at which `part` begins in the text; overlaps count once."""
    found: list[int] = []
    line, counted, start = 1, 0, text.find(part)
    while start >= 0:
        line, counted = line + text.count("\n", counted, start), start
        found.append(line)
        start = text.find(part, start + len(part))
    return found


def near_misses(text: str, part: str) -> str:
    """What the text has instead of `part`: the same but for white space, else the lines most like its own."""
    lines, wanted = text.splitlines()[:_SEARCHED], part.strip().splitlines()
    plain, target = ["".join(line.split()) for line in lines], ["".join(line.split()) for line in wanted]
    places = range(len(plain) - len(target) + 1) if target else range(0)
    if same := next((n + 1 for n in places if plain[n : n + len(target)] == target), 0):
        first, last = same, same + len(wanted) - 1
        return f"Lines {first} to {last} are the same but for white space:\n{numbered(text, first, last, limit=3000)}"
    sought = max(wanted, key=lambda line: len(line.strip()), default="").strip()[:_LIKENED]
    starts = [line.strip()[: len(sought) + _LONGER] for line in lines]
    close = difflib.get_close_matches(sought, dict.fromkeys(starts), n=_MOST_CLOSE, cutoff=0.55)
    numbers = [n for n, start in enumerate(starts, 1) if start in close][: 2 * _MOST_CLOSE]
    if not numbers:
        return "No line of the file is like it: look at the file with view_file."
    return "The lines most like it:\n" + "\n".join(numbered(text, n, n) for n in numbers)
