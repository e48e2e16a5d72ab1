"""In which order asynchronous work completes: any that the rules allow, and for the same number always the same.

| order | what advances |
|---|---|
| 0 | nothing while threads do more than poll; then, of what each block asked for, the last |
| 1 | everything at once, as it was asked for |
| 2 and more | a part drawn at random, every round; the number is the seed |

Order 0 shows most: who does not wait finds that nothing has come, and so does who counts on the order of requests.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from cutesmith.emulator.ptx.syntax import Instruction

_MOST_ROUNDS = 64  # that work is held back while threads run: they may be polling
_CHANCE = 0.25


class CompletionOrder:
    """Chooses what advances in a round."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._random = random.Random(number)
        self._held = 0

    def advancing(self, blocks: Sequence[int], stalled: bool) -> list[int]:
        """Indices of the work that advances, in order; `blocks` names who asked for each piece, the oldest first.

        `stalled`: no thread can run, or all that can only poll. Then something of every block advances: those of a
        cluster go on side by side.
        """
        everything = range(len(blocks))
        if self._number == 1:
            return list(everything)
        last = {block: index for index, block in enumerate(blocks)}
        if self._number == 0:
            self._held += 1
            if not stalled and self._held < _MOST_ROUNDS:
                return []
            self._held = 0
            return sorted(last.values())
        chosen = [index for index in everything if self._random.random() < _CHANCE]
        if stalled:
            started = {blocks[index] for index in chosen}
            for block in sorted(set(blocks) - started):
                chosen.append(self._random.choice([index for index in everything if blocks[index] == block]))
        self._random.shuffle(chosen)
        return chosen


def completes_later(instruction: Instruction) -> bool:
    """Whether the instruction asks an engine for something that is done in an order of completion."""
    words = instruction.modifiers
    if instruction.opcode == "tcgen05":
        return words[:1] in (("mma",), ("cp",), ("ld",), ("st",))
    moves = instruction.opcode == "cp" and "bulk" in words and not {"commit_group", "wait_group", "prefetch"} & {*words}
    return moves or (instruction.opcode in ("st", "red") and words[:1] == ("async",))
