"""The address space of a launch as handlers use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cutesmith.emulator.machine.lanes import Array
from cutesmith.emulator.native.abi import Access, Space

if TYPE_CHECKING:
    from cutesmith.emulator.machine.wave import Wave


class Memory(Protocol):
    """Checked access for many lanes at once; faults are written down, not raised. `site`: the instruction number."""

    def attach(self, wave: Wave) -> None:
        """A new wave of the launch begins: fill the words of its context that belong to memory and sanitizer."""

    def load(self, lanes: Array, space: Space, addresses: Array, size: int, site: int) -> Array:
        """uint8 (n, size); zeros where the access was refused."""

    def store(self, lanes: Array, space: Space, addresses: Array, data: Array, site: int) -> None:
        """Write uint8 (n, size), in the order of `lanes`."""

    def pointers(self, lanes: Array, space: Space, addresses: Array, size: int, kind: Access, site: int) -> Array:
        """uint64 host addresses of checked accesses, 0 where refused."""

    def module_symbol(self, name: str) -> int:
        """The global address of a `.global` or `.const` variable."""

    def drain(self) -> None:
        """Turn the faults that native code wrote down into findings of the wave."""

    def synchronise_blocks(self, blocks: Array) -> None:
        """All lanes of each of these blocks of the wave have met at a barrier."""

    def synchronise_lanes(self, lanes: Array) -> None:
        """These lanes have met at a barrier (or arrived there before): a part of one block."""

    def release_cluster(self, lanes: Array) -> None:
        """These lanes have arrived at their cluster's barrier: what they did comes before what its waiters do next."""

    def acquire_cluster(self, lanes: Array) -> None:
        """These lanes have waited for their cluster's barrier."""
