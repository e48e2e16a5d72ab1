"""What the host does to the memory of an emulated device: `cudaMalloc`, `cudaFree`, `cudaMemset`, `cudaMemcpy`."""

from __future__ import annotations

import ctypes

import numpy as np

from cutesmith.emulator.errors import EmulationError
from cutesmith.emulator.state.allocations import Allocations

_FIRST_ADDRESS = 0x7E80_0000_0000  # apart from the addresses that tensors claim
_GAP = 1 << 20
_ALIGNMENT = 256


class DeviceMemory:
    """Calls of the CUDA runtime on the allocations of a device; an address that none holds is one of the host."""

    def __init__(self, allocations: Allocations) -> None:
        self._allocations = allocations
        self._next = _FIRST_ADDRESS
        self._own: set[int] = set()

    def allocate(self, size: int) -> int:
        """The address of `size` new bytes without values."""
        address = self._next
        self._next += -(-(size + _GAP) // _ALIGNMENT) * _ALIGNMENT
        self._allocations.add_array(np.zeros(size, np.uint8), address, f"{size} bytes from cudaMalloc", fresh=True)
        self._own.add(address)
        return address

    def free(self, address: int) -> None:
        """Give back what `allocate` gave; address 0 is nothing, as for `cudaFree`."""
        if not address:
            return
        if address not in self._own:
            raise EmulationError(f"cudaFree of {address:#x}, where nothing was allocated")
        self._own.remove(address)
        self._allocations.remove(address)

    def fill(self, address: int, value: int, size: int) -> None:
        """Set bytes."""
        ctypes.memset(self._reach(address, size, "cudaMemset", writes=True), value, size)

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy bytes between device and host, in either direction."""
        to = self._reach(target, size, "cudaMemcpy", writes=True) if self._allocations.at(target) else target
        origin = self._reach(source, size, "cudaMemcpy", writes=False) if self._allocations.at(source) else source
        ctypes.memmove(to, origin, size)

    def _reach(self, address: int, size: int, call: str, *, writes: bool) -> int:
        """The host address of `size` bytes of the device."""
        allocation = self._allocations.at(address)
        if allocation is None or allocation.distance(address, size):
            raise EmulationError(f"{call} of {size} bytes at {address:#x} leaves the memory that was allocated")
        offset = address - allocation.address
        if writes and allocation.initialised is not None:
            allocation.initialised[offset : offset + size] = 1
            allocation.untouched = False
        return allocation.host + offset
