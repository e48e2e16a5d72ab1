"""What `access` shares with the sanitizer: context words, flags of instructions, tables of allocations and faults."""

from __future__ import annotations

import enum
from functools import lru_cache

import numpy as np

from cutesmith.emulator.program.abi import Array, Context
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.emulator.sanitizer.cells import MAX_SITE


class Sanitizer(enum.IntEnum):
    """Words of the context that belong to memory and sanitizer; pointers are 0 where nothing is checked.

    "By block" and "by lane" are indices within the wave; times are those of Cell.
    """

    SHARED_WRITERS = Context.FIRST_SANITIZER_WORD  # uint64 cell of each byte of SHARED, see shared_shadows.py
    SHARED_READERS = 33  # the same for reads
    SHARED_READING_WARPS = 34  # uint32 for each byte: which warps read it, where the cell says SEVERAL
    LOCAL_INITIALISED = 35  # uint8 for each byte of LOCAL
    PARAMETER_BYTES = 36
    LAST_ALLOCATIONS = 37  # int64 [CACHED_SITES]: the allocation that an instruction hit last
    FIRST_SERIAL = 38  # serial number of the wave's first block in the launch, from 1
    THREADS = 39  # threads of a block
    TIME = 40  # int64 by first block of a cluster: the time of its accesses now
    BLOCK_BASE = 41  # int64 by block: earlier times of the block are ordered before all that its lanes do now
    CLUSTER_BASE = 42  # int64 by block: the same for times of the other blocks of its cluster
    WARP_BASE = 43  # int64 by lane: the same for the other lanes of its warp
    KNOWLEDGE = 44  # pointer by first block of a cluster: int32 [its lanes][KNOWLEDGE_WIDTH], or 0; see Clocks
    SITES = 45  # uint8 [MAX_SITE + 1]: Site flags of each instruction
    SEQUENCE = 46  # counts releases over the whole launch
    LANE_RELEASED = 47  # uint32 by lane, 2 each: time of its last release, SEQUENCE of its first since the barrier
    LANE_FENCED = 48  # uint32 by lane: time of its last fence, 0 without one
    LANE_ACQUIRED = 49  # uint32 by lane: SEQUENCE at its last strong read
    BLOCK_RELEASED = 50  # uint32 by serial, 2 each
    BLOCK_FENCED = 51  # uint32 by serial
    BLOCK_ACQUIRED = 52  # uint32 by serial
    PENDING = 53  # pointer to the write whose value is still to be compared (PENDING_WORDS)
    KNOWLEDGE_WIDTH = 54  # columns of KNOWLEDGE: the lanes of the cluster, then its channels; 0: not exact
    THREADS_VIEW = 55  # of a context for engines: that of threads; 0 in that of threads itself
    SHARED_VISITED = 57  # uint8 by block: whether a thread of another block accessed its shared memory
    CHUNK_WRITERS = 58  # uint64 cell of each 16 bytes of SHARED, or APART: chunk_checks.py
    CHUNK_READERS = 59
    CHUNK_READING_WARPS = 60
    ENGINE_CELL = 56  # of a context for engines: channel and time, where they are in a cell, and the bit ENGINE


class Site(enum.IntFlag):
    """What an instruction means to the order of memory."""

    STRONG = 1  # atomic, volatile, relaxed or stronger: never races with another strong one
    RELEASES = 2  # `.release` or `.acq_rel`
    READS = 4  # of strong ones only
    WRITES = 8


_STRONG_ORDERS = frozenset(("relaxed", "acquire", "release", "acq_rel", "volatile", "mmio", "sc"))
_RELEASING = frozenset(("release", "acq_rel"))


@lru_cache(64)
def site_flags(program: Program) -> Array:
    """uint8 (MAX_SITE + 1,) of Site; an instruction beyond MAX_SITE shares the last, which never races.

    Not to be written: the launches of a program share them.
    """
    flags = np.zeros(MAX_SITE + 1, np.uint8)
    for instruction in program.instructions[:MAX_SITE]:
        flags[instruction.number] = _flags(instruction)
    flags[MAX_SITE] = Site.STRONG
    return flags


def _flags(instruction: Instruction) -> Site:
    words = frozenset(instruction.modifiers)
    if "async" in words:
        return Site.STRONG if "reduce" in words or instruction.opcode == "red" else Site(0)
    atomic = instruction.opcode in ("atom", "red", "multimem")
    if not atomic and not (instruction.opcode in ("ld", "st") and words & _STRONG_ORDERS):
        return Site(0)
    flags = Site.STRONG
    if atomic or instruction.opcode == "st":
        flags |= Site.WRITES
    if instruction.opcode in ("atom", "ld"):
        flags |= Site.READS
    return flags | Site.RELEASES if words & _RELEASING else flags


class Fault(enum.IntEnum):
    """Kinds of fault records, with the names of faults.FaultKind."""

    OUT_OF_BOUNDS = 1
    MISALIGNED = 2
    UNINITIALISED_READ = 3
    RACE = 4
    MISSING_WAIT = 5
    MISSING_FENCE = 6


class Allocation(enum.IntEnum):
    """Words of an entry of the allocation table, which is sorted by START."""

    START = 0  # claimed address
    END = 1  # behind the last byte
    HOST_DELTA = 2  # host address minus claimed address
    SHADOWED = 3  # whether any of the following is set
    INITIALISED = 4  # pointer to uint8 a byte, 0 if all bytes are initialised
    WRITERS = 5  # pointer to a uint64 cell of each granule, 0 without
    READERS = 6
    GRANULE = 7  # log2 of its bytes
    CHUNK_WRITERS = 8  # uint64 cell of each GLOBAL_CHUNK bytes, or APART: chunk_checks.py
    CHUNK_READERS = 9


ALLOCATION_WORDS = 10
GLOBAL_CHUNK = 128  # bytes: a row of the boxes that most kernels copy
CACHED_SITES = 256

FAULT_SLOTS = 1024  # a power of two: distinct faults between two drains
FAULT_RECORD = np.dtype(
    [
        ("count", np.uint32),  # 0: a free slot
        ("kind", np.uint32),
        ("site", np.uint32),
        ("other_site", np.uint32),
        ("lane", np.uint32),  # of the wave
        ("space", np.uint32),
        ("bytes", np.uint32),
        ("access", np.uint32),
        ("address", np.uint64),
        ("cell", np.uint64),  # of the other access, 0 without one
        ("number", np.uint64),  # order of first occurrence
    ]
)
FAULT_HEADER_WORDS = 1  # how many records were begun since the last drain


class Pending(enum.IntEnum):
    """Words of the write that conflicts and whose value is still to be compared with what it overwrote."""

    ACTIVE = 0
    POINTER = 1  # host address
    COMPARED = 2  # bytes from there
    CELL = 3  # the access that it conflicts with
    WRITERS = 4  # pointer to the cells of what it writes
    COUNT = 5  # of those
    ADDRESS = 6
    LANE = 7
    SPACE = 8
    BYTES = 9
    KIND = 10
    SITE = 11
    OLD = 12  # and following: the bytes before


MOST_COMPARED = 128
PENDING_WORDS = Pending.OLD + MOST_COMPARED // 8
