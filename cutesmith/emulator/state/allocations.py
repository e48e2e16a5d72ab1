"""Global memory: which allocation an address belongs to, and where its bytes are on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.ptx.syntax import Variable

_FIRST_VARIABLE = 0x7A00_0000_0000  # module variables; the windows of abi.py follow, then what tensors claim
_GAP = 256
_LARGEST_ELEMENT = 16


@dataclass(eq=False)
class Allocation:
    """`size` bytes at the device address `address`, whose bytes are at the host address `host`.

    `name` is what a person calls it, such as "input 0" or "output 0". `element`: bytes of its element type. `fresh`:
    allocated without values, so that each byte must be written before it is read; `initialised` (uint8 a byte) says
    which have been; none has while it is `untouched`. `owner` keeps the bytes alive.
    """

    address: int
    size: int
    host: int
    name: str
    element: int = 1
    fresh: bool = False
    owner: Any = None
    initialised: Array | None = field(init=False, default=None)
    untouched: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        if self.fresh:
            self.initialised, self.untouched = np.zeros(self.size, np.uint8), True

    @property
    def end(self) -> int:
        """The address behind the last byte."""
        return self.address + self.size

    @property
    def granule(self) -> int:
        """log2 of the bytes that share a shadow cell: an element, if its size is a power of two."""
        power_of_two = self.element & (self.element - 1) == 0 and 0 < self.element <= _LARGEST_ELEMENT
        return self.element.bit_length() - 1 if power_of_two else 0

    def distance(self, address: int, size: int) -> int:
        """How far [address, address + size) reaches out: > 0 bytes past the end, < 0 before the start, 0 not at all."""
        if address < self.address:
            return address - self.address
        return max(0, address + size - self.end)

    def written_by_host(self) -> None:
        """All bytes have values now."""
        self.initialised, self.untouched = None, False


class Allocations:
    """All allocations of a device, over many launches; those of module variables too."""

    def __init__(self) -> None:
        self._by_address: dict[int, Allocation] = {}
        self._variables: dict[int, tuple[object, dict[str, int]]] = {}
        self._next_variable = _FIRST_VARIABLE

    def add(self, allocation: Allocation) -> Allocation:
        """Add an allocation; raises ValueError where the addresses are taken."""
        others = self._by_address.values()
        taken = next((o for o in others if allocation.address < o.end and o.address < allocation.end), None)
        if taken is not None:
            raise ValueError(
                f"{allocation.name} at {allocation.address:#x} overlaps {taken.name} at {taken.address:#x}"
            )
        self._by_address[allocation.address] = allocation
        return allocation

    def add_array(self, array: Array, address: int, name: str, *, fresh: bool = False) -> Allocation:
        """Add the bytes of a contiguous array."""
        size, element = array.nbytes, array.itemsize
        return self.add(Allocation(address, size, array.ctypes.data, name, element, fresh=fresh, owner=array))

    def remove(self, address: int) -> None:
        """Forget the allocation that starts there."""
        del self._by_address[address]

    def at(self, address: int) -> Allocation | None:
        """The allocation that holds an address."""
        return next((a for a in self._by_address.values() if a.address <= address < a.end), None)

    def nearest(self, address: int, size: int) -> Allocation | None:
        """The allocation that an access is in or least far from."""
        return min(self.all, key=lambda allocation: abs(allocation.distance(address, size)), default=None)

    @property
    def all(self) -> list[Allocation]:
        """Every allocation, by address."""
        return [self._by_address[address] for address in sorted(self._by_address)]

    def touch(self) -> None:
        """A launch begins, which may write anywhere."""
        for allocation in self._by_address.values():
            allocation.untouched = False

    def variables(self, module: object, variables: Iterable[Variable]) -> dict[str, int]:
        """Addresses of a module's `.global` and `.const` variables by name; they keep their values over launches."""
        if id(module) not in self._variables:
            addresses: dict[str, int] = {}
            for variable in variables:
                align = max(variable.align, _GAP)
                address = addresses[variable.name] = -(-self._next_variable // align) * align
                self._next_variable = address + variable.size + _GAP
                content = np.zeros(max(1, variable.size), np.uint8)
                initial = np.frombuffer((variable.initial or b"")[: variable.size], np.uint8)
                content[: len(initial)] = initial
                self.add_array(content, address, f"the variable {variable.name}")
            self._variables[id(module)] = (module, addresses)
        return self._variables[id(module)][1]
