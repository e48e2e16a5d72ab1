"""The address space of a launch as handlers use it."""

from __future__ import annotations

from typing import Protocol

from cutesmith.emulator.machine.lanes import Array
from cutesmith.emulator.native.abi import Access, Space


class Memory(Protocol):
    """Checked access for many lanes at once; faults are written down, not raised. `site`: the instruction number."""

    def load(self, lanes: Array, space: Space, addresses: Array, size: int, site: int) -> Array:
        """uint8 (n, size); zeros where the access was refused."""

    def store(self, lanes: Array, space: Space, addresses: Array, data: Array, site: int) -> None:
        """Write uint8 (n, size), in the order of `lanes`."""

    def pointers(self, lanes: Array, space: Space, addresses: Array, size: int, kind: Access, site: int) -> Array:
        """uint64 host addresses of checked accesses, 0 where refused."""

    def module_symbol(self, name: str) -> int:
        """The global address of a `.global` or `.const` variable."""
