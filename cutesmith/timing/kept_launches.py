"""Timed launches whose outputs are kept and judged (rules R2, R3)."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Kept:
    """One output held back: its tag, which launch of its round made it, and (shift, launches) of each round so far."""

    tag: str
    launch: int
    rounds: tuple[tuple[int, int], ...]


def launch_to_keep(source: random.Random, launches: int, copies: int, *, again: bool) -> int:
    """A random launch of a round; `again`: one that finds a copy as another left it, where results can be remembered.

    Inputs rotate through `copies`; where no launch of the round sees one again, any may be kept.
    """
    return source.randrange(copies if again and launches > copies else 0, launches)
