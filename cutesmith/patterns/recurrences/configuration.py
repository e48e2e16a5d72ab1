"""What the kernel of a recurrent layer is free to choose."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.configuration import Configuration


@dataclass(frozen=True)
class RecurrencesConfiguration(Configuration):
    """How the units of a layer lie over threads: `cluster` blocks share them, and `lanes` threads the sums of a unit.

    A cluster has `rows` rows of the batch. `held`: the weights stay in registers; else each step reads them again.
    """

    cluster: int
    lanes: int
    rows: int
    held: bool
