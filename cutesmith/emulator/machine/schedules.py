"""Which warps of a block run before which: any order is legal, and some show a deadlock that equal turns hide.

| order | who runs |
|---|---|
| 0 | every warp that can, side by side |
| 1 | of each block the first warp that can, as far as it can, before the next one |
| 2 | the last one before the others |
| 3 and more | by ranks drawn at random; the number is the seed |

A producer that runs ahead laps a consumer that nothing makes it wait for; the consumer then waits for a phase whose
parity has come round. The numbers are those of the orders of completion (engines/completion_orders.py).
"""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.program.abi import WARP, Array
from cutesmith.emulator.state.wave import Wave

MOST_HELD = 256  # rounds for which a warp that can run is held back: the one before it may poll for what it writes

Groups = list[tuple[int, Array]]  # lanes by the basic block where they start


def described(order: int) -> str:
    """The order in words."""
    names = {0: "all warps side by side", 1: "the first warps of a block first", 2: "its last warps first"}
    return names.get(order, f"warps by ranks of seed {order}")


class Schedule:
    """Chooses who runs in a round."""

    def __init__(self, order: int, wave: Wave) -> None:
        self._blocks, self._held = len(wave.blocks), 0
        self._place_of_lane: Array | None = None  # block by block the ranks of its warps
        if order:
            ranks = _ranks(order, wave.threads_per_block)
            in_block = np.arange(wave.lane_count) % wave.threads_per_block // WARP
            self._place_of_lane = wave.block_of_lane * len(ranks) + ranks[in_block]
            self._ranks = len(ranks)

    def choose(self, groups: Groups, *, fair: bool) -> tuple[Groups, Groups]:
        """Those of these lanes that run now, and those that are held back. `fair`: none are."""
        self._held = 0 if fair else self._held + 1
        if self._place_of_lane is None or fair or self._held > MOST_HELD:
            self._held = 0
            return groups, []
        places = [self._place_of_lane[lanes] for _, lanes in groups]
        can_run = np.zeros((self._blocks, self._ranks), bool)
        for here in places:
            can_run.reshape(-1)[here] = True
        runs = (np.arange(self._ranks) == can_run.argmax(axis=1)[:, None]).ravel()
        chosen: Groups = []
        held: Groups = []
        for (basic_block, lanes), here in zip(groups, places, strict=True):
            now = runs[here]
            if now.all():
                chosen.append((basic_block, lanes))
                continue
            chosen += [(basic_block, lanes[now])] if now.any() else []
            held.append((basic_block, lanes[~now]))
        self._held *= bool(held)
        return chosen, held


def _ranks(order: int, threads: int) -> Array:
    """int64 (warps of a block,): who comes first has the lowest."""
    warps = -(-threads // WARP)
    if order <= 2:
        return np.arange(warps) if order == 1 else np.arange(warps)[::-1].copy()
    return np.random.default_rng(order).permutation(warps)
