"""The global memory of an emulated device: which addresses exist, where their bytes are, what they are called."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cutesmith.emulator.faults import EmulationError
from cutesmith.emulator.machine.lanes import Array

_FIRST_OWN_ADDRESS = 0x7E80_0000_0000  # what `cudaMalloc` gives: apart from the addresses that tensors claim
_GAP = 1 << 20
_ALIGNMENT = 256


@dataclass
class Allocation:
    """`size` bytes of device memory at `address`, whose bytes are at the host address `host`.

    `written`: None when every byte has a value, else bool (size,), kept from launch to launch. `name` is how messages
    call it; `owner` keeps the bytes alive.
    """

    address: int
    size: int
    host: int
    name: str = ""
    written: Array | None = None
    owner: Any = None


@dataclass
class AddressSpace:
    """All allocations of a device, and bytes copied in and out of them."""

    _by_address: dict[int, Allocation] = field(default_factory=dict)
    _next: int = _FIRST_OWN_ADDRESS

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """By ascending address; none overlap."""
        return tuple(self._by_address[address] for address in sorted(self._by_address))

    def add(self, allocation: Allocation) -> None:
        """Map an allocation; one at the same address is replaced."""
        self._by_address[allocation.address] = allocation

    def at(self, address: int) -> Allocation | None:
        """The allocation that begins at the address."""
        return self._by_address.get(address)

    def allocate(self, size: int, name: str) -> int:
        """Map `size` new bytes without values; the address."""
        data, address = np.zeros(max(1, size), np.uint8), self._next
        unwritten = np.zeros(size, np.bool_)
        self.add(Allocation(address, size, data.ctypes.data, name, unwritten, data))
        self._next += -(-(size + _GAP) // _ALIGNMENT) * _ALIGNMENT
        return address

    def free(self, address: int) -> None:
        """Unmap what `allocate` gave; address 0 is nothing, as for `cudaFree`."""
        if address and self._by_address.pop(address, None) is None:
            raise EmulationError(f"cudaFree of {address:#x}, where nothing was allocated")

    def fill(self, address: int, value: int, size: int) -> None:
        """Set bytes."""
        ctypes.memset(self._reach(address, size, "cudaMemset", write=True), value, size)

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy bytes; an address that no allocation holds is one of the host."""
        to = self._reach(target, size, "cudaMemcpy", write=True) if self._holding(target) else target
        origin = self._reach(source, size, "cudaMemcpy", write=False) if self._holding(source) else source
        ctypes.memmove(to, origin, size)

    def _reach(self, address: int, size: int, call: str, *, write: bool) -> int:
        """The host address of `size` bytes of the device."""
        allocation = self._holding(address)
        if allocation is None or address + size > allocation.address + allocation.size:
            raise EmulationError(f"{call} of {size} bytes at {address:#x} leaves the memory that was allocated")
        offset = address - allocation.address
        if write and allocation.written is not None:
            allocation.written[offset : offset + size] = True
        return allocation.host + offset

    def _holding(self, address: int) -> Allocation | None:
        starts = sorted(self._by_address)
        index = bisect_right(starts, address) - 1
        if index < 0:
            return None
        allocation = self._by_address[starts[index]]
        return allocation if address < allocation.address + max(1, allocation.size) else None
