"""What a launch depends on but must not: it is run again with other bytes in unwritten memory, or in another order.

Kernels read past the rows that they own and throw the values away, which is harmless. A read is a fault when results
depend on it: when memory differs after the launch, or when the launch ends otherwise.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.errors import EmulationError
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.state.allocations import Allocation, Allocations

FILLS = (0x5A, 0xDA)  # as float32 1.5e16 and -3.1e16: a maximum, a minimum and a sum all show at least one
MOST_BYTES = 256 << 20  # of global memory: more is not copied, and every such read counts


@dataclass
class Snapshot:
    """The bytes of all allocations, and which of them have been written, at one moment."""

    _states: list[tuple[Allocation, Array, Array | None]]

    @classmethod
    def take(cls, allocations: Allocations) -> Snapshot | None:
        """None where there is too much to copy."""
        if sum(allocation.size for allocation in allocations.all) > MOST_BYTES:
            return None
        return cls(
            [(a, _bytes(a).copy(), None if a.initialised is None else a.initialised.copy()) for a in allocations.all]
        )

    def restore(self, fill: int | None = None) -> None:
        """Put everything back; with `fill`, that byte in unwritten memory."""
        for allocation, content, initialised in self._states:
            _bytes(allocation)[:] = content
            if initialised is not None and allocation.initialised is not None:
                allocation.initialised[:] = initialised
                if fill is not None:
                    _bytes(allocation)[initialised == 0] = fill

    def agrees(self) -> bool:
        """Whether memory is now what it was then, leaving out unwritten bytes."""
        return self.changed() is None

    def changed(self) -> str | None:
        """The name of an allocation that is not what it was then, leaving out unwritten bytes."""
        for allocation, content, initialised in self._states:
            now = _bytes(allocation)
            if initialised is not None and allocation.initialised is not None:
                if not np.array_equal(allocation.initialised, initialised):
                    return allocation.name
                now, content = now[initialised != 0], content[initialised != 0]
            if not np.array_equal(now, content):
                return allocation.name
        return None


def _bytes(allocation: Allocation) -> Array:
    """The allocation's bytes themselves."""
    if not allocation.size:
        return np.zeros(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * allocation.size).from_address(allocation.host))


def uninitialised_bytes_matter(before: Snapshot, allocations: Allocations, run: Callable[[int], object]) -> bool:
    """Whether `run(fill)` from the state `before` ends in another state than the present one, which is kept."""
    after = Snapshot.take(allocations)
    if after is None:
        return True
    try:
        for fill in FILLS:
            before.restore(fill)
            run(fill)
            if not after.agrees():
                return True
        return False
    except EmulationError:
        return True
    finally:
        after.restore()


def order_that_matters(
    before: Snapshot, allocations: Allocations, orders: Iterable[int], run: Callable[[int], object]
) -> tuple[int, str] | None:
    """The first order of completion in which `run(order)` from the state `before` ends otherwise, and how.

    The present state, that of the first order, is kept. None without such an order, or with too much memory to compare.
    """
    after = Snapshot.take(allocations)
    if after is None:
        return None
    try:
        for order in orders:
            before.restore()
            try:
                run(order)
            except EmulationError as error:
                return order, f"ends with: {error.message}"
            if (name := after.changed()) is not None:
                return order, f"leaves other values in {name}"
        return None
    finally:
        after.restore()
