"""The race check of tensor memory: who wrote and who read each piece of it last, and who has to know of that.

Three kinds of actor touch tensor memory, all of them asynchronously: loads of a warp, stores of a warp, and the tensor
core in the name of the thread that asked for a product or a copy. Each is a channel (sanitizer/actors.py), which
`tcgen05.wait::ld`, `tcgen05.wait::st` and the mbarrier of a `tcgen05.commit` make known. What one thread asks the
tensor core for is done in order (PTX ISA, "Pipelined tcgen05 instructions"). Between two threads that holds where
`tcgen05.fence::before_thread_sync` and `::after_thread_sync` stand around what orders them. After an mbarrier or a wait
no fence is asked for: kernels of the DSL leave it out.

A piece is 16 lanes of one column.
"""

from __future__ import annotations

import enum

import numpy as np

from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.machine.machine import Machine
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.emulator.sanitizer.actors import Request
from cutesmith.emulator.state.findings import where
from cutesmith.emulator.tensor_cores.tensor_memory_regions import COLUMNS, LANES, Region

_PIECE = 16
_CELL = np.dtype([("column", np.int32), ("time", np.int32), ("site", np.int32), ("lane", np.int32)])


class Use(enum.Enum):
    """How an access touches tensor memory; the value is the verb of findings."""

    LOAD = "read"
    STORE = "written"
    PIPE_READ = "read by the tensor core"
    PIPE_WRITE = "written by the tensor core"
    FREE = "freed"

    @property
    def writes(self) -> bool:
        """Whether what it touches changes."""
        return self in (Use.STORE, Use.PIPE_WRITE, Use.FREE)

    @property
    def by_pipe(self) -> bool:
        """Whether the tensor core makes it."""
        return self in (Use.PIPE_READ, Use.PIPE_WRITE)


class TensorMemoryOrder:
    """Cells of each block, (3, blocks, pieces, columns): its last writer, last load, last reader of the tensor core."""

    def __init__(self, machine: Machine, blocks: int) -> None:
        self._machine = machine
        self._cells = np.zeros((3, blocks, LANES // _PIECE, COLUMNS), _CELL)
        self._by_pipe = np.zeros((blocks, LANES // _PIECE, COLUMNS), bool)  # of the writer
        self._fenced_before: dict[int, list[int]] = {}  # by lane: times of its fences
        self._known_after: dict[int, Array] = {}  # by lane: what it knew at its last fence

    def fence_before(self, lanes: Array) -> None:
        """These lanes have executed `tcgen05.fence::before_thread_sync`."""
        for lane in lanes.tolist() if self._machine.memory.sanitize else ():
            self._fenced_before.setdefault(lane, []).append(self._machine.memory.clocks.now(lane))

    def fence_after(self, lanes: Array) -> None:
        """These lanes have executed `tcgen05.fence::after_thread_sync`."""
        for lane in lanes.tolist() if self._machine.memory.sanitize else ():
            known = self._machine.memory.known(np.array([lane]))
            if known is not None:
                self._known_after[lane] = known

    def touch(
        self, region: Region, use: Use, request: Request, lanes: Array, instruction: Instruction, known: Array | None
    ) -> None:
        """Check an access that `lanes` make or ask for, who know what is `known`, and write it down."""
        if known is None:
            return
        pieces = np.unique(region.lanes // _PIECE)
        at = np.ix_(pieces, np.arange(region.column, region.column + region.count))
        others = (0, 1, 2) if use.writes else (0,)
        for kind in others:
            cells = self._cells[kind, region.block][at]
            by_pipe = self._by_pipe[region.block][at] if kind == 0 else np.full(cells.shape, kind == 2)
            self._judge(region, use, request, lanes, instruction, known, cells, by_pipe, kind)
        slot = 0 if use.writes else 2 if use.by_pipe else 1
        if use is Use.FREE:
            self._cells[:, region.block, :, region.columns] = 0
            return
        column = self._machine.memory.clocks.column(request.channel)
        self._cells[slot, region.block][at] = (column, request.time, instruction.number + 1, request.lane)
        if use.writes:
            self._by_pipe[region.block][at] = use.by_pipe

    def _judge(
        self, region: Region, use: Use, request: Request, lanes: Array, instruction: Instruction, known: Array,
        cells: Array, by_pipe: Array, kind: int,
    ) -> None:  # fmt: skip
        used = cells["site"] > 0
        if not used.any():
            return
        wide = np.pad(known, (0, max(0, int(cells["column"].max()) + 1 - len(known))))
        open_cells = used & (wide[cells["column"]] < cells["time"])
        column = self._machine.memory.clocks.column(request.channel)
        if use.by_pipe:
            open_cells &= ~(by_pipe & (cells["lane"] == request.lane))
        elif use is Use.STORE and kind == 0:
            open_cells &= cells["column"] != column  # stores of a warp stay in order
        if not open_cells.any():
            return
        first = cells[open_cells][0]
        pipe = bool(by_pipe[open_cells][0])
        fault = self._fault(use, request, lanes, first, pipe, kind)
        if fault is None:
            return
        other = self._machine.wave.program.instructions[int(first["site"]) - 1]
        verb = "reading" if kind else "writing"
        message = f"`{instruction.full_opcode}` uses {region} that `{other.full_opcode}` at {where(other.location)} "
        message += f"may still be {verb}: {_MISSING[fault]}"
        self._machine.wave.report(fault, message, lanes[:1], instruction, other.location)

    def _fault(self, use: Use, request: Request, lanes: Array, cell: Array, pipe: bool, kind: int) -> FaultKind | None:
        """What is missing between an earlier access and this one; None where fences order the two."""
        lane, time = int(cell["lane"]), int(cell["time"])
        if pipe and use.by_pipe:
            fences = [fence for fence in self._fenced_before.get(lane, ()) if fence >= time]
            after = self._known_after.get(request.lane)
            now = self._machine.memory.known(np.array([request.lane]))
            if fences and after is not None and after[lane - self._first(lane)] >= fences[0]:
                return None
            ordered = now is not None and now[lane - self._first(lane)] >= time
            return FaultKind.MISSING_FENCE if ordered else FaultKind.RACE
        warps = self._machine.warps.warp_of_lane
        if not pipe and warps[lane] == warps[lanes[0]] and not use.by_pipe:
            return FaultKind.MISSING_WAIT
        return FaultKind.RACE

    def _first(self, lane: int) -> int:
        """The first lane of its cluster."""
        wave = self._machine.wave
        return int(wave.cluster_of_lane[lane]) * wave.threads_per_block


_MISSING = {
    FaultKind.RACE: "nothing waits for its completion",
    FaultKind.MISSING_WAIT: "no `tcgen05.wait` lies between the two",
    FaultKind.MISSING_FENCE: "what orders the threads stands between no `tcgen05.fence::before_thread_sync` and "
    "`tcgen05.fence::after_thread_sync`",
}
