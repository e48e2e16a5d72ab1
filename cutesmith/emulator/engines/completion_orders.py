"""In which order asynchronous work completes: any that the rules allow, and for the same number always the same.

| order | what advances |
|---|---|
| 0 | nothing while threads can run; then, of each cluster, what was asked for last, and all that it is awaited with |
| 1 | everything at once, as it was asked for |
| 2 and more | a part drawn at random, every round; the number is the seed |

Order 0 shows most: who does not wait finds that nothing has come, and so does who counts on the order of requests.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from cutesmith.emulator.ptx.syntax import Instruction

_MOST_ROUNDS = 64  # that work is held back while threads run: they may be polling
_CHANCE = 0.25


@dataclass(frozen=True)
class Piece:
    """Asynchronous work: its cluster, and by what its completion is observed, such as mbarriers."""

    cluster: int
    channels: frozenset[Hashable]


class CompletionOrder:
    """Chooses what advances in a round."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._random = random.Random(number)
        self._held = 0

    def advancing(self, pieces: Sequence[Piece], stalled: bool) -> list[int]:
        """Indices of the work that advances, in order; `pieces` begin with the oldest.

        `stalled`: no thread can run. Then something of every cluster advances.
        """
        clusters = [piece.cluster for piece in pieces]
        everything = range(len(clusters))
        if self._number == 1:
            return list(everything)
        last = {cluster: index for index, cluster in enumerate(clusters)}
        if self._number == 0:
            self._held += 1
            if not stalled and self._held < _MOST_ROUNDS:
                return []
            self._held = 0
            return _awaited_with(pieces, last.values())
        chosen = [index for index in everything if self._random.random() < _CHANCE]
        if stalled:
            started = {clusters[index] for index in chosen}
            for cluster in sorted(set(clusters) - started):
                chosen.append(self._random.choice([index for index in everything if clusters[index] == cluster]))
        self._random.shuffle(chosen)
        return chosen


def _awaited_with(pieces: Sequence[Piece], last: Iterable[int]) -> list[int]:
    """These pieces, the last of their clusters, and what shares an mbarrier or bulk groups with them, the last first.

    The blocks of a cluster that wait for the same stage of a ring then go on together, which is faster by a half.
    """
    channels = {channel for index in last for channel in pieces[index].channels}
    chosen = [index for index in range(len(pieces)) if not channels.isdisjoint(pieces[index].channels)]
    return chosen[::-1]


def completes_later(instruction: Instruction) -> bool:
    """Whether the instruction asks an engine for something that is done in an order of completion."""
    words = instruction.modifiers
    if instruction.opcode == "tcgen05":
        return words[:1] in (("mma",), ("cp",), ("ld",), ("st",))
    moves = instruction.opcode == "cp" and "bulk" in words and not {"commit_group", "wait_group", "prefetch"} & {*words}
    return moves or (instruction.opcode in ("st", "red") and words[:1] == ("async",))
