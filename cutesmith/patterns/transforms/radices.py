"""How a line is cut into butterflies: radices, threads of a line, and places in shared memory without conflicts."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from cutesmith.patterns.graph.line_lengths import prime_factors

RADICES = (16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2)
"""Numbers of a butterfly: the parts of 16 take 32 registers of a thread."""
MOST_HELD = 16
"""Complex numbers that a thread holds."""
SECTOR_THREADS = 8
"""Neighbouring threads of a line that ask for whole sectors of memory."""
EXCHANGE = 1.0
"""What a round through shared memory takes, where the work on each number of a butterfly takes 1."""
GAPS = (0, 16, 8, 32, 4)
"""Places between two that are left free, the first that has the fewest conflicts; 0: none is."""
HALF_WARP = 16
"""Lanes whose 8 bytes each are the banks of shared memory once."""


@dataclass(frozen=True)
class Stage:
    """One round of butterflies of a line: `before` is the product of the radices of earlier ones."""

    radix: int
    before: int
    count: int

    @property
    def apart(self) -> int:
        """Butterflies of a line; the numbers of each lie so far apart."""
        return self.count // self.radix

    @property
    def factors(self) -> tuple[int, ...]:
        """The prime factors of the radix, the largest first."""
        return tuple(sorted(prime_factors(self.radix), reverse=True))

    def rounds(self, threads: int) -> int:
        """Butterflies of a thread."""
        return -(-self.apart // threads)


def stages(radices: tuple[int, ...]) -> tuple[Stage, ...]:
    """The rounds of a line."""
    count = math.prod(radices)
    return tuple(Stage(radix, math.prod(radices[:at]), count) for at, radix in enumerate(radices))


@functools.cache
def ways(count: int) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Radices and threads of a line of so many complex numbers, the most promising first."""
    found = dict[tuple[tuple[int, ...], int], tuple[float, int]]()
    for radices in _products(count, RADICES):
        rounds = stages(radices)
        for threads in {-(-each.apart // turns) for each in rounds for turns in range(1, 9)}:
            held = max(each.radix * each.rounds(threads) for each in rounds)
            if held <= MOST_HELD and threads <= 512:
                slots = sum(threads * each.rounds(threads) * each.radix for each in rounds) / count
                narrow = max(1.0, SECTOR_THREADS / threads)
                found[radices, threads] = slots + EXCHANGE * (len(radices) - 1) + narrow, held
    return tuple(sorted(found, key=lambda way: (*found[way], way)))


def _products(count: int, radices: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The ways to make a number of radices, each no larger than the one before."""
    if count == 1:
        yield ()
    for at, radix in enumerate(radices):
        if count % radix == 0:
            yield from ((radix, *rest) for rest in _products(count // radix, radices[at:]))


def best_gap(radices: tuple[int, ...], threads: int) -> int:
    """After how many numbers a place stays free, so that half a warp meets the fewest conflicts."""
    return min(GAPS, key=lambda gap: conflicts(radices, threads, gap))


def conflicts(radices: tuple[int, ...], threads: int, gap: int) -> float:
    """How many times as long as without conflicts the accesses of a line's first threads take, in the mean."""
    found = list[int]()
    lanes = range(min(threads, HALF_WARP))
    for stage, following in zip(stages(radices), stages(radices)[1:], strict=False):
        writes = [[at // stage.before * stage.before * stage.radix + at % stage.before for at in lanes]]
        reads = [[at + turn * following.apart for at in lanes] for turn in range(following.radix)]
        writes = [[place + turn * stage.before for place in writes[0]] for turn in range(stage.radix)]
        for places in (*writes, *reads):
            banks = [(place + (place // gap if gap else 0)) % HALF_WARP for place in places]
            found.append(max(map(banks.count, banks)))
    return sum(found) / max(1, len(found))
