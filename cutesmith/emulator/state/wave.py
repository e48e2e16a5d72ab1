"""The state of the blocks that run side by side: frame, special registers, memory and the context of native code."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cutesmith.emulator.faults import FaultKind, Finding
from cutesmith.emulator.instructions.forms import literal_bits
from cutesmith.emulator.program.abi import (
    CLOCKS,
    CONTEXT_WORDS,
    PARAMETER_WINDOW,
    SHARED_BASE,
    SHARED_RANK_SHIFT,
    SPECIAL_ROWS,
    Array,
    Context,
)
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    Location,
    Operand,
    Register,
    Sink,
    SpecialRegister,
    Symbol,
)
from cutesmith.emulator.state.findings import Findings, Printed


@dataclass
class Wave:
    """All lanes of some whole clusters. Lanes of a block are consecutive, in the order of their flat thread index.

    `frame`: uint64 (slot_count, lanes). `special`: uint32 (len(SPECIAL_REGISTERS), lanes). `block_of_lane`,
    `cluster_of_lane`: uint32 (lanes,). `blocks`: (x, y, z) of each block of the wave. `members`: int64 (warps, 32), the
    lanes of each warp, -1 where the block has no such thread. `shared`: uint8 (blocks, bytes); `local`: uint8 (lanes,
    bytes). `parameters` (uint8), `counts` (uint64, by basic block), `findings` and `printed` are the launch's.
    `status`: int32 (lanes,), the status codes of abi.py. `module_symbols`: addresses of the module's variables.
    `tensor_core_sm`: whose tensor cores `mma` rounds like; 0 means those of the program's target. `waiting_clusters`:
    the launch's clusters that have not started, by their first block; `clusterlaunchcontrol` takes from it.
    `registers`: of a thread when it starts; 0 where its machine code moves none by `setmaxnreg`.
    """

    program: Program
    frame: Array
    special: Array
    block_of_lane: Array
    cluster_of_lane: Array
    blocks: Array
    members: Array
    status: Array
    threads_per_block: int
    shared: Array
    local: Array
    parameters: Array
    counts: Array
    cluster_blocks: int = 1
    context: Array = field(default_factory=lambda: np.zeros(CONTEXT_WORDS, np.int64))
    findings: Findings = field(default_factory=Findings)
    printed: Printed = field(default_factory=Printed)
    module_symbols: dict[str, int] = field(default_factory=dict)
    tensor_core_sm: int = 0
    waiting_clusters: deque[tuple[int, int, int]] = field(default_factory=deque)
    registers: int = 0

    @property
    def lane_count(self) -> int:
        """Lanes of the wave."""
        return int(self.frame.shape[1])

    @cached_property
    def shared_start(self) -> int:
        """The host address of `shared`."""
        return int(self.shared.ctypes.data)

    @cached_property
    def shared_bytes(self) -> Array:
        """`shared` as one row, uint8."""
        return self.shared.reshape(-1)

    def thread(self, lane: int) -> tuple[int, int, int]:
        """(x, y, z) of a lane in its block."""
        x, y, z = (int(self.special[SPECIAL_ROWS[f"%tid.{axis}"], lane]) for axis in "xyz")
        return (x, y, z)

    def block(self, lane: int) -> tuple[int, int, int]:
        """(x, y, z) of a lane's block in the grid."""
        x, y, z = (int(index) for index in self.blocks[self.block_of_lane[lane]])
        return (x, y, z)

    def blocks_at(self, pointers: Array) -> Array:
        """int64 (n,): the blocks of the wave in whose shared memory these host addresses are."""
        blocks: Array = (pointers.astype(np.int64) - self.shared_start) // self.shared.shape[1]
        return blocks

    def shared_place(self, pointer: int) -> str:
        """A host address in shared memory as "byte 64 of the shared memory of block (0, 0, 0)"."""
        block, offset = divmod(pointer - self.shared_start, self.shared.shape[1])
        return f"byte {offset - SHARED_BASE} of the shared memory of block {tuple(self.blocks[block].tolist())}"

    def report(
        self,
        kind: FaultKind,
        message: str,
        lanes: Array,
        instruction: Instruction | None,
        other: Location | None = None,
    ) -> None:
        """Write a fault of `lanes` (at least one) down: its kind, a sentence; the first lane is named.

        `other`: where the access is that it conflicts with.
        """
        lane, location = int(lanes[0]), instruction.location if instruction else None
        finding = Finding(kind, message, location, self.thread(lane), self.block(lane), other=other, count=len(lanes))
        self.findings.add(finding, instruction.number if instruction else -1)

    def read(self, operand: Operand, lanes: Array, dtype: Any = np.uint32) -> Array:
        """The bits of a register, special register, literal or symbol for each of `lanes`, as a numpy type.

        They are truncated to the type's width; `bool` reads a predicate.
        """
        dtype = np.dtype(dtype)
        if isinstance(operand, Immediate):
            literal: Array = np.full(lanes.shape, literal_bits(operand, dtype), f"u{dtype.itemsize}").view(dtype)
            return literal
        if isinstance(operand, SpecialRegister):
            bits = self.special_register(operand.name, lanes)
        elif isinstance(operand, Symbol):
            bits = self._symbol(operand, lanes)
        elif isinstance(operand, Register):
            bits = self.frame[self.program.slots[operand.name], lanes]
            if dtype == np.bool_:
                truth: Array = (bits & np.uint64(1)).astype(bool) ^ operand.negated
                return truth
        else:
            raise TypeError(f"{operand!r} has no value")
        if dtype.itemsize == 16:
            raise TypeError("read 128-bit registers through wave.frame")
        taken: Array = bits.astype(f"u{dtype.itemsize}").view(dtype)
        return taken

    def write(self, operand: Operand, lanes: Array, values: Any, where: Array | None = None) -> None:
        """Set a register of `lanes` from values of any numpy type, zero-extended; a Sink swallows them."""
        if isinstance(operand, Sink):
            return
        if not isinstance(operand, Register):
            raise TypeError(f"{operand!r} is not a destination")
        array = np.broadcast_to(np.asarray(values), lanes.shape)
        if array.dtype != np.bool_:
            array = array.view(f"u{array.dtype.itemsize}")
        if where is not None:
            lanes, array = lanes[where], array[where]
        self.frame[self.program.slots[operand.name], lanes] = array.astype(np.uint64)

    def address(self, operand: Address, lanes: Array) -> Array:
        """uint64 addresses of `[base + offset]`."""
        bits = 64
        if isinstance(operand.base, Register):
            bits = self.program.widths[operand.base.name]
        base = self.read(operand.base, lanes, np.uint64)
        addresses: Array = (base + np.uint64(operand.offset & (2**64 - 1))) & np.uint64(2**bits - 1)
        return addresses

    def special_register(self, name: str, lanes: Array) -> Array:
        """uint64 values of a special register."""
        if name in CLOCKS:
            return np.full(lanes.shape, int(self.context[Context.CLOCK]) >> CLOCKS[name], np.uint64)
        values: Array = self.special[SPECIAL_ROWS[name], lanes].astype(np.uint64)
        return values

    def _symbol(self, operand: Symbol, lanes: Array) -> Array:
        """uint64 addresses of a variable in its own space: shared addresses carry the block's rank."""
        program, name = self.program, operand.name
        if name in program.shared_symbols:
            rank = self.special_register("%cluster_ctarank", lanes)
            offset = np.uint64(program.shared_symbols[name] + operand.offset)
            return (rank << np.uint64(SHARED_RANK_SHIFT)) + offset
        if name in program.local_symbols:
            start = program.local_symbols[name]
        elif name in program.parameters:
            start = PARAMETER_WINDOW + program.parameters[name]
        else:
            start = self.module_symbols[name]
        return np.full(lanes.shape, start + operand.offset, np.uint64)
