"""What a kernel of a pattern is free to choose: each pattern's own frozen dataclass derives from this."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Configuration:
    """The fields of the subclasses are numbers and words; the kernel is right for each of their values."""

    def to_dict(self) -> dict[str, int | str]:
        """JSON-able, in the order of the fields."""
        return dict(vars(self))
