"""What a launch depends on but must not: it is run again with other bytes in unwritten memory, or in another order.

Kernels read past the rows that they own and throw the values away, which is harmless. A read is a fault when results
depend on it: when memory differs after the launch, or when the launch ends otherwise.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.errors import EmulationError
from cutesmith.emulator.faults import FaultKind, Finding, KernelFault
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.ptx.syntax import Location
from cutesmith.emulator.state.allocations import Allocation, Allocations
from cutesmith.emulator.state.lent_arrays import LentArrays

FILLS = (0x5A, 0xDA)  # as float32 1.5e16 and -3.1e16: a maximum, a minimum and a sum all show at least one
MOST_BYTES = 256 << 20  # of global memory: more is not copied, and every such read counts


@dataclass
class Snapshot:
    """The bytes of all allocations, and which of them have been written, at one moment; no bytes where none have."""

    _states: list[tuple[Allocation, Array | None, Array | None]]

    @classmethod
    def take(cls, allocations: Allocations, lent: LentArrays) -> Snapshot | None:
        """None where there is too much to copy. The bytes are in arrays of `lent`, until it takes the next one."""
        if sum(allocation.size for allocation in allocations.all) > MOST_BYTES:
            return None
        return cls([_state(allocation, f"snapshot {n}", lent) for n, allocation in enumerate(allocations.all)])

    def restore(self, fill: int | None = None) -> None:
        """Put everything back; with `fill`, that byte in unwritten memory."""
        for allocation, content, initialised in self._states:
            if content is not None:
                _bytes(allocation)[:] = content
            if allocation.initialised is not None:
                allocation.initialised[:] = 0 if initialised is None else initialised
                if fill is not None:
                    _bytes(allocation)[allocation.initialised == 0] = fill

    def agrees(self) -> bool:
        """Whether memory is now what it was then, leaving out unwritten bytes."""
        return self.changed() is None

    def changed(self) -> str | None:
        """The name of an allocation that is not what it was then, leaving out unwritten bytes."""
        for allocation, content, initialised in self._states:
            if content is None:
                if allocation.initialised is not None and allocation.initialised.any():
                    return allocation.name
                continue
            now = _bytes(allocation)
            if initialised is not None and allocation.initialised is not None:
                if not np.array_equal(allocation.initialised, initialised):
                    return allocation.name
                now, content = now[initialised != 0], content[initialised != 0]
            if not np.array_equal(now, content):
                return allocation.name
        return None


def _state(allocation: Allocation, name: str, lent: LentArrays) -> tuple[Allocation, Array | None, Array | None]:
    if allocation.untouched:
        return allocation, None, None
    flags, content = allocation.initialised, lent.take(name, (allocation.size,), np.uint8, fill=None)
    content[:] = _bytes(allocation)
    return allocation, content, None if flags is None else flags.copy()


def _bytes(allocation: Allocation) -> Array:
    """The allocation's bytes themselves."""
    if not allocation.size:
        return np.zeros(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * allocation.size).from_address(allocation.host))


def uninitialised_bytes_matter(before: Snapshot, allocations: Allocations, run: Callable[[int], object]) -> bool:
    """Whether `run(fill)` from the state `before` ends in another state than the present one, which is kept."""
    after = Snapshot.take(allocations, LentArrays())
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


@dataclass(frozen=True)
class OtherEnd:
    """How a launch ends in another order: what it leaves or raises, and the findings that the first order has not."""

    order: int
    how: str
    findings: tuple[Finding, ...] = ()


def order_that_matters(
    before: Snapshot,
    allocations: Allocations,
    orders: Iterable[int],
    run: Callable[[int], tuple[Finding, ...]],
    known: Sequence[Finding],
) -> OtherEnd | None:
    """The first order in which `run(order)` from the state `before` ends otherwise, or finds more than is `known`.

    The present state, that of the first order, is kept. None without such an order, or with too much memory to compare.
    """
    after = Snapshot.take(allocations, LentArrays())
    if after is None:
        return None
    sites = {(finding.kind, finding.location) for finding in known}
    try:
        for order in orders:
            before.restore()
            try:
                found = run(order)
            except KernelFault as error:
                return OtherEnd(order, f"ends with: {error.message}", _beyond(error.findings, sites))
            except EmulationError as error:
                return OtherEnd(order, f"ends with: {error.message}")
            if new := _beyond(found, sites):
                return OtherEnd(order, "has another finding", new)
            if (name := after.changed()) is not None:
                return OtherEnd(order, f"leaves other values in {name}")
        return None
    finally:
        after.restore()


def _beyond(findings: Iterable[Finding], sites: set[tuple[FaultKind, Location | None]]) -> tuple[Finding, ...]:
    """Those of another kind or place. Reads of uninitialised memory have a check of their own."""
    new = (finding for finding in findings if (finding.kind, finding.location) not in sites)
    return tuple(finding for finding in new if finding.kind is not FaultKind.UNINITIALISED_READ)
