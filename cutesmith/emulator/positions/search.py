"""A launch at full size, of which some blocks are run for their addresses: does an index wrap on the way to memory?"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from cutesmith.devices import SmVersion
from cutesmith.emulator.errors import EmulationError
from cutesmith.emulator.instruction_set import build_program
from cutesmith.emulator.machine.lanes import LaneBatch
from cutesmith.emulator.machine.launch import LaunchRun
from cutesmith.emulator.machine.memory import Memory
from cutesmith.emulator.machine.settings import Settings
from cutesmith.emulator.machine.suspensions import lane_operation
from cutesmith.emulator.native.jit import compile_program
from cutesmith.emulator.positions.elision import POSITION, reduced
from cutesmith.emulator.positions.widened import widened
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.program.calls import without_calls
from cutesmith.emulator.ptx.parser import parse
from cutesmith.emulator.ptx.syntax import Address, Function, Location, Module
from cutesmith.emulator.sanitizer.access import access_ir
from cutesmith.emulator.state.allocations import Allocations
from cutesmith.emulator.state.geometry import some_clusters
from cutesmith.recording.cubin import CubinKernel
from cutesmith.recording.sessions import Launch
from cutesmith.recording.sessions import Module as Compiled

LARGE = 1 << 30  # bytes: of a tensor of two elements a byte, the first whose positions leave 31 bits
_MOST_STEPS = 30_000_000  # some seconds; see Settings.step_limit
BITS_OF_FLOATS = 24  # of an integer that float32 holds
EXACT_IN_FLOATS = 1 << BITS_OF_FLOATS
_THROUGH_FLOATS = re.compile(r"\bcvt\.r[nzmp]i\.(?:ftz\.)?(?:sat\.)?[su](?:32|64)\.f32\b")
"""In PTX text: integers that are made of float32, perhaps an index."""
_MASKS = "|".join(str(mask << low) for mask in (0x7FFF, 0xFFFF) for low in range(16))
_MAY_BE_NARROW = re.compile(
    r"\bcvt\.(?:[us]\d+\.[us](?:8|16)|[us](?:8|16)\.[us]\d+)\b|\bshr\.s32\b.*, (?:16|24);"
    rf"|\band\.b32\b.*, (?:{_MASKS});"
)
"""In PTX text: fewer than 32 bits of an integer, perhaps of an index."""


@dataclass(frozen=True)
class Tensor:
    """Named bytes of memory from a device address on, and whether `kernel_fn` returns them."""

    name: str
    address: int
    size: int
    returned: bool = False


class Held(Protocol):
    """A launch that is not executed."""

    @property
    def launch(self) -> Launch:
        """Grid, block and parameters."""

    @property
    def kernel(self) -> CubinKernel:
        """What the cubin says of it."""

    @property
    def module(self) -> Compiled:
        """The compilation that holds it."""


@dataclass(frozen=True)
class Wrap:
    """An access that meant byte `meant` of a tensor and goes to byte `got` of it, by one thread of many."""

    location: Location | None
    tensor: Tensor
    meant: int
    got: int
    thread: tuple[int, int, int]
    block: tuple[int, int, int]
    bits: int


@dataclass(frozen=True)
class Searched:
    """How many blocks were run, what was found first, or why nothing could be looked for."""

    blocks: int = 0
    wrap: Wrap | None = None
    untried: str = ""


def search(held: Held, tensors: Sequence[Tensor], sm: SmVersion) -> Searched:
    """Whether an index of 32 or 16 bits wraps in some blocks of the launch, the last one among them.

    An access counts where the address with integers of 64 bits is another one and lies in a tensor. Through 16
    bits it counts where the actual address lies in no tensor, or two positions of an output are written to one address.
    Nothing is run where no tensor is large and no integer that an address is made of is narrow.
    """
    large = any(tensor.size >= LARGE for tensor in tensors)
    floats = any(tensor.size > EXACT_IN_FLOATS for tensor in tensors) and bool(_THROUGH_FLOATS.search(held.module.ptx))
    if not large and not floats and not _MAY_BE_NARROW.search(held.module.ptx):
        return Searched()
    try:
        return _Search(held, tensors, sm).result(large=large, floats=floats)
    except EmulationError as error:
        return Searched(untried=error.message)


class _Search:
    def __init__(self, held: Held, tensors: Sequence[Tensor], sm: SmVersion) -> None:
        self._held, self._tensors, self._sm = held, tensors, sm
        self._module = parse(held.module.ptx)
        self._function = reduced(without_calls(self._module, self._module.functions[held.launch.kernel]))

    def result(self, *, large: bool, floats: bool) -> Searched:
        searched = self._run(self._function, _Wrapped) if large else Searched()
        if searched.wrap is None and floats:
            rounded = self._run(self._function, _Rounded)
            searched = replace(rounded, blocks=max(rounded.blocks, searched.blocks))
        if searched.wrap is None and widened(self._function).narrow:
            narrow = self._run(self._function, _Collisions)
            return replace(narrow, blocks=max(narrow.blocks, searched.blocks))
        return searched

    def _run(self, function: Function, kind: type[_Log]) -> Searched:
        through = {"through_16_bits": kind is _Collisions, "through_floats": kind is _Rounded}
        function = widened(function, **through).function
        module: Module = replace(self._module, functions={function.name: function})
        program = build_program(module, function.name)
        log = kind(program, self._tensors)
        run = LaunchRun(
            program=program,
            native=compile_program(program, access_ir()),
            launch=self._held.launch,
            kernel=self._held.kernel,
            sm=self._sm,
            memory=log,
            settings=Settings(sanitize=False, step_limit=_MOST_STEPS),
        )
        run.chosen = some_clusters(run.geometry)
        run.run()
        return Searched(len(run.chosen) * run.geometry.cluster_blocks, log.wrap)


class _Log(Memory):
    """The memory of a launch that is run for its addresses, its global memory empty; `wrap`: what was found first."""

    def __init__(self, program: Program, tensors: Sequence[Tensor]) -> None:
        super().__init__(program, Allocations(), sanitize=False)
        self.tensors = sorted(tensors, key=lambda tensor: tensor.address)
        self._starts = np.array([tensor.address for tensor in self.tensors] or [0], np.uint64)
        self._sizes = np.array([tensor.size for tensor in self.tensors] or [0], np.uint64)
        self.wrap: Wrap | None = None

    @abstractmethod
    def note(self, batch: LaneBatch, addresses: Array, wide: Array) -> None:
        """Lanes would access `addresses`; `wide`: what these are with integers of 64 bits. Both uint64 (n,)."""

    def in_tensors(self, addresses: Array) -> tuple[Array, Array]:
        """The tensor at or before each address, and whether the address lies in it."""
        index = np.maximum(np.searchsorted(self._starts, addresses, side="right") - 1, 0)
        return index, (addresses - self._starts[index] < self._sizes[index]) & (addresses >= self._starts[index])

    def keep(self, batch: LaneBatch, addresses: Array, wide: Array, first: int, bits: int) -> None:
        """Remember the access of the lane at place `first`."""
        tensor = self.tensors[int(self.in_tensors(wide[first : first + 1])[0][0])]
        lane = int(batch.lanes[first])
        self.wrap = self.wrap or Wrap(
            location=batch.instruction.location,
            tensor=tensor,
            meant=int(wide[first]) - tensor.address,
            got=int(addresses[first]) - tensor.address,
            thread=batch.wave.thread(lane),
            block=batch.wave.block(lane),
            bits=bits,
        )


class _Wrapped(_Log):
    """Accesses whose address wide integers make another one of, in a tensor."""

    def note(self, batch: LaneBatch, addresses: Array, wide: Array) -> None:
        wrapped = (addresses != wide) & self.in_tensors(wide)[1]
        if wrapped.any():
            self.keep(batch, addresses, wide, int(np.flatnonzero(wrapped)[0]), 32)


class _Rounded(_Log):
    """Accesses whose address is another one where the positions that become float32 keep all their bits."""

    def note(self, batch: LaneBatch, addresses: Array, wide: Array) -> None:
        rounded = (addresses != wide) & self.in_tensors(wide)[1]
        if rounded.any():
            self.keep(batch, addresses, wide, int(np.flatnonzero(rounded)[0]), BITS_OF_FLOATS)


class _Collisions(_Log):
    """Accesses through 16 bits that lie in no tensor, and stores of several positions to one address of an output."""

    def __init__(self, program: Program, tensors: Sequence[Tensor]) -> None:
        super().__init__(program, tensors)
        self._meant: dict[int, int] = {}

    def note(self, batch: LaneBatch, addresses: Array, wide: Array) -> None:
        index, meant = self.in_tensors(wide)
        wrong = (addresses != wide) & meant & ~self.in_tensors(addresses)[1]
        if batch.instruction.modifiers[0] == "st":
            returned = np.array([tensor.returned for tensor in self.tensors] or [False])[index]
            for place in np.flatnonzero(returned):  # another position may have been written to the address
                position = int(wide[place])
                taken = self._meant.setdefault(int(addresses[place]), position) != position
                wrong[place] |= meant[place] & taken
        if wrong.any():
            self.keep(batch, addresses, wide, int(np.flatnonzero(wrong)[0]), 16)


@lane_operation(POSITION)
def position(batch: LaneBatch) -> None:
    """`position.kind [address], [wide address]`: an address that is written down and not accessed."""
    address, wide = batch.instruction.operands
    assert isinstance(address, Address) and isinstance(wide, Address) and isinstance(batch.memory, _Log)
    batch.memory.note(batch, batch.address(address), batch.address(wide))
