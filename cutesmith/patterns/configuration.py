"""What a pattern's kernel is free to choose: the fields that each room adds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Configuration:
    """The fields of a pattern's own are numbers and words; the kernel is right for each of their values."""

    def to_dict(self) -> dict[str, object]:
        """JSON-able, in the order of the fields."""
        return dict(vars(self))
