"""What a launch has printed."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_PRINTED = 1 << 20  # characters: what the printf buffer of a device holds by default


@dataclass
class Printed:
    """The texts that a launch printed, at most MOST_PRINTED characters; `last`: the last one of each lane."""

    texts: list[str] = field(default_factory=list)
    last: dict[int, str] = field(default_factory=dict)
    size: int = 0

    def add(self, lane: int, text: str) -> None:
        """A lane prints."""
        self.last[lane] = text
        if self.size < MOST_PRINTED:
            self.texts.append(text)
        self.size += len(text)
