"""Shared memory of a block that other blocks of its cluster still use when it ends: a block takes its memory with it.

Whether a block has ended when another one comes is a matter of time, so order decides: what the others last did to each
of its bytes must be known to one of its threads in the end. Ordinary accesses are judged; those of engines are the
copy engine's, and bytes that several blocks have read are left out. Arrivals at mbarriers are noted on their own.
"""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.program.abi import SHARED_BASE, Array
from cutesmith.emulator.sanitizer import cells as cells
from cutesmith.emulator.sanitizer.clocks import Clocks
from cutesmith.emulator.sanitizer.shared_shadows import SharedCells
from cutesmith.emulator.state.wave import Wave


class RemoteArrivals:
    """The last arrival of each lane, by instruction, at mbarriers of each other block of its cluster."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int, int], tuple[int, int]] = {}  # block, site, lane: time, mbarrier

    def note(self, wave: Wave, clocks: Clocks, lanes: Array, pointers: Array, site: int) -> None:
        """These lanes arrive at the mbarriers at these host addresses now."""
        blocks = wave.blocks_at(pointers)
        foreign = blocks != wave.block_of_lane[lanes]
        times = clocks.time_of(lanes)
        for block, lane, time, pointer in zip(*(each[foreign].tolist() for each in (blocks, lanes, times, pointers))):
            self._last[block, site, lane] = (min(time, cells.MAX_TIME), pointer)

    def report_late(self, wave: Wave, clocks: Clocks) -> None:
        """Findings for arrivals that no thread of the mbarrier's block knows of in the end."""
        late: dict[tuple[int, int], list[int]] = {}
        for (block, site, lane), (time, pointer) in self._last.items():
            serial, thread = clocks.first_serial + wave.block_of_lane[lane], lane % wave.threads_per_block
            if not clocks.known_to_block(block, *(np.array([each], np.int64) for each in (serial, thread, time)))[0]:
                late.setdefault((site, pointer), []).append(lane)
        for (site, pointer), lanes in late.items():
            instruction = wave.program.instructions[site]
            message = (
                f"`{instruction.full_opcode}` at {wave.shared_place(pointer)}, which may have ended: nothing there "
                "waits for this arrival, such as the tail of the producer that it frees a stage for"
            )
            wave.report(FaultKind.RACE, message, np.array(lanes), instruction)


_ACCESSES = ("ld", "st", "atom", "red")


def report_accesses_after_end(wave: Wave, clocks: Clocks, blocks: list[int], shared: SharedCells) -> None:
    """Findings for `blocks` of a wave that has ended, by the cells of its shared memory."""
    for block in blocks:
        for shadow in shared.of_block(block):
            _judge(wave, clocks, block, shadow)


def _judge(wave: Wave, clocks: Clocks, block: int, shadow: Array) -> None:
    used = np.flatnonzero((shadow != 0) & (shadow < np.uint64(cells.ENGINE)))
    entries = shadow[used]
    serials = (entries >> np.uint64(cells.SERIAL_SHIFT) & np.uint64(cells.MAX_SERIAL)).astype(np.int64)
    threads = (entries >> np.uint64(cells.THREAD_SHIFT)).astype(np.int64) & ((1 << cells.THREAD_BITS) - 1)
    foreign = (serials != clocks.first_serial + block) & (threads < cells.MOST_THREADS)
    places, serials, threads = used[foreign], serials[foreign], threads[foreign]
    late = ~clocks.known_to_block(block, serials, threads, _times(shadow[places]))
    places, serials, threads = places[late], serials[late], threads[late]
    known = wave.program.instructions
    for site in np.unique(shadow[places] & np.uint64(cells.MAX_SITE)).tolist():
        if site >= min(len(known), cells.MAX_SITE) or known[site].opcode not in _ACCESSES:
            continue
        of_site = shadow[places] & np.uint64(cells.MAX_SITE) == site
        lanes = (serials[of_site] - clocks.first_serial) * wave.threads_per_block + threads[of_site]
        byte = int(places[of_site][0]) - SHARED_BASE
        where = f"byte {byte} of the shared memory of block {tuple(wave.blocks[block].tolist())}"
        message = (
            f"`{known[site].full_opcode}` uses {where}, which may have ended: "
            "nothing there waits for this access, such as a barrier of the cluster before the end"
        )
        wave.report(FaultKind.RACE, message, np.unique(lanes), known[site])


def _times(shadow: Array) -> Array:
    times: Array = (shadow >> np.uint64(cells.TIME_SHIFT)).astype(np.int64) & cells.MAX_TIME
    return times
