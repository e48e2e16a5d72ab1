"""Addresses that are written down and not accessed (positions/elision.py)."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from cutesmith.emulator.machine.lanes import Array, Lanes
from cutesmith.emulator.operations.registry import lane_operation
from cutesmith.emulator.ptx.syntax import Address


@runtime_checkable
class PositionLog(Protocol):
    """The memory of a launch that is run for its addresses."""

    def note(self, lanes: Lanes, addresses: Array, wide: Array) -> None:
        """Lanes would access `addresses`; `wide`: what these are with integers of 64 bits. Both uint64 (n,)."""


@lane_operation("position")
def position(lanes: Lanes) -> None:
    """`position.kind [address], [wide address]`."""
    address, wide = lanes.instruction.operands
    assert isinstance(address, Address) and isinstance(wide, Address)
    log = lanes.wave.memory
    assert isinstance(log, PositionLog), "positions are only looked at by positions.search"
    log.note(lanes, lanes.address(address), lanes.address(wide))
