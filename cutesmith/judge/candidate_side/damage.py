"""What a call did to memory that is not its output: inputs, guard zones, workspaces of earlier calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cutesmith.judge.candidate_side.outputs import same_bytes
from cutesmith.judge.candidate_side.watching import KernelWatch
from cutesmith.judge.transfer.tensors import Guarded, GuardZones
from cutesmith.verdicts import Mechanism, Rule, Violation

OUTSIDE = "the kernel wrote outside a tensor that it allocated"
OUTSIDE_EARLIER = (
    "the kernel wrote outside a tensor that an earlier call allocated: it may be too small for these inputs"
)


@dataclass
class Buffer:
    """One input as the kernel sees it, and the bytes it had before."""

    value: Any
    guarded: Guarded | None = None
    pristine: torch.Tensor | None = None  # with the guard zones


class Workspaces:
    """Guard zones of what earlier calls allocated, for as long as something holds it: a later call may use it.

    On an emulated GPU there are none: it knows where a tensor ends.
    """

    def __init__(self) -> None:
        self._zones: list[GuardZones] = []

    def keep(self, watch: KernelWatch) -> None:
        """Go on looking beside what a call allocated."""
        self._zones += [guarded.zones for guarded in watch.allocations if guarded.zones.bytes[1].numel()]

    def forget_freed(self) -> None:
        """Let go of what nothing but the zones holds."""
        self._zones = [zones for zones in self._zones if zones.held]

    def intact(self) -> bool:
        """Whether nothing wrote beside one of them."""
        return all(zones.intact() for zones in self._zones)


def damage(buffers: Sequence[Buffer], watch: KernelWatch, earlier: Workspaces) -> list[Violation]:
    """What one call changed that it may not change."""
    found = []
    for index, buffer in enumerate(buffers):
        if buffer.guarded is None or buffer.pristine is None:
            continue
        if not buffer.guarded.zones.intact():
            found.append(_outside(f"the kernel wrote outside input {index}"))
        elif not same_bytes(buffer.guarded.raw, buffer.pristine):
            text = f"the kernel changed input {index}: inputs are read-only"
            found.append(Violation(Rule.O2, Mechanism.INPUTS_COMPARED, text))
    found += [Violation(Rule.W1, Mechanism.DEVICE_MEMORY, sentence) for sentence in watch.tampering]
    if not all(guarded.zones.intact() for guarded in watch.allocations):
        found.append(_outside(OUTSIDE))
    return found if earlier.intact() else [*found, _outside(OUTSIDE_EARLIER)]


def _outside(text: str) -> Violation:
    return Violation(Rule.O8, Mechanism.GUARD_ZONES, text, reject=False)
