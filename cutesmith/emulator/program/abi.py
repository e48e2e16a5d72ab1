"""What native code and the machine agree on: the context that every native function receives, codes, address windows.

A native function is `void run_<basic_block>(ptr context, ptr lanes, i64 count)`: `context` points to CONTEXT_WORDS
words of 64 bits (`Context`), `lanes` to `count` int32 indices into the wave. It runs each lane until it is suspended
and writes a status code (int32) to `context[STATUS][lane]`.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
WARP = 32
CONTEXT_WORDS = 64
SHARED_UNIT = 16  # bytes


class Context(enum.IntEnum):
    """Index of each 64-bit word of the context; "pointer" words hold host addresses."""

    FRAME = 0  # pointer to uint64 [slot_count][LANES]
    LANES = 1  # lanes of the wave: the row stride of frame and special registers
    STATUS = 2  # pointer to int32 [LANES]: the status code of each lane
    SPECIAL = 3  # pointer to uint32 [len(SPECIAL_REGISTERS)][LANES]
    PARAMETERS = 4  # pointer to the parameter buffer of the launch
    FUEL = 5  # back edges that a lane may take before it must give way
    COUNTS = 6  # pointer to uint64 [number of basic blocks]: how often a lane ran each; 0 when not profiling
    CLOCK = 7  # virtual clock, advanced by the scheduler
    BLOCK_OF_LANE = 8  # pointer to uint32 [LANES]: index of the lane's block within the wave
    CLUSTER_OF_LANE = 9  # pointer to uint32 [LANES]: index within the wave of the first block of the lane's cluster
    SHARED = 10  # pointer to uint8 [blocks of the wave][SHARED_STRIDE]
    SHARED_BYTES = 11  # bytes of shared memory a block, SHARED_BASE included
    LOCAL = 12  # pointer to uint8 [LANES][LOCAL_BYTES]
    LOCAL_BYTES = 13
    ALLOCATIONS = 14  # pointer to the table of global allocations (machine/memory.py)
    ALLOCATION_COUNT = 15
    FAULTS = 16  # pointer to the fault buffer (sanitizer/fault_table.py)
    CLUSTER_BLOCKS = 17  # blocks of a cluster
    ACCESS_LOG = 18  # pointer to the access log of the profiler, 0 when not profiling
    TRACE = 19  # pointer to the trace buffer, 0 when not tracing
    MODULE_SYMBOLS = 20  # pointer to int64 [len(Program.module_variables)]: the global address of each, in that order
    LANE_COUNTS = 21  # pointer to uint32 [number of basic blocks][LANES]: how often each lane ran each, or 0
    SHARED_STRIDE = 22  # from one block to the next: SHARED_BYTES, rounded up to SHARED_UNIT
    FIRST_SANITIZER_WORD = 32  # this word and those after it belong to the sanitizer


EXITED = -1
FAULTED = -2
_FIRST_PREEMPTED = -16
"""Status codes: the number of a suspension point, one of these, or -16 - b: out of fuel, resumes at basic block b."""


def preempted_at(basic_block: int) -> int:
    """The status code of a lane that gave way before `basic_block`."""
    return _FIRST_PREEMPTED - basic_block


def resume_of(code: int) -> int:
    """The basic block at which a preempted lane resumes."""
    return _FIRST_PREEMPTED - code


class Space(enum.IntEnum):
    """State spaces of an access."""

    GENERIC = 0
    GLOBAL = 1
    SHARED = 2  # addresses carry the rank of the block in its cluster: rank << 24 | offset
    LOCAL = 3
    PARAM = 4
    CONST = 5


class Access(enum.IntEnum):
    """What an access does."""

    READ = 0
    WRITE = 1
    ATOMIC = 2  # reads and writes, never races with another atomic
    MBARRIER = 3  # of an mbarrier: only bounds and alignment are checked


SHARED_BASE = 0x400
"""Offset of a block's first shared variable: as on sm_90, where the first KB is the system's; 0 is never valid."""
SHARED_RANK_SHIFT = 24
SHARED_WINDOW = 0x0000_7B00_0000_0000
"""Generic address of shared memory: the window plus the 32-bit shared address (with its rank)."""
LOCAL_WINDOW = 0x0000_7C00_0000_0000
"""Generic address of local memory: the window plus the thread's local offset."""
PARAMETER_WINDOW = 0x0000_7D00_0000_0000
"""Generic address of the kernel's parameters."""
WINDOW_BYTES = 1 << 36

SPECIAL_REGISTERS = (
    "%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z",
    "%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z",
    "%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid",
    "%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt",
    "%clusterid.x", "%clusterid.y", "%clusterid.z", "%nclusterid.x", "%nclusterid.y", "%nclusterid.z",
    "%cluster_ctaid.x", "%cluster_ctaid.y", "%cluster_ctaid.z",
    "%cluster_nctaid.x", "%cluster_nctaid.y", "%cluster_nctaid.z", "%cluster_ctarank", "%cluster_nctarank",
    "%is_explicit_cluster", "%dynamic_smem_size", "%total_smem_size", "%aggr_smem_size", "%gridid_lo", "%gridid_hi",
)  # fmt: skip
"""Rows of the special-register table, one uint32 a lane. `%clock*` and `%globaltimer*` come from CLOCK instead."""
SPECIAL_ROWS = {name: row for row, name in enumerate(SPECIAL_REGISTERS)}
CLOCKS = {"%clock": 0, "%clock64": 0, "%globaltimer": 0, "%globaltimer_lo": 0, "%clock_hi": 32, "%globaltimer_hi": 32}
"""By how many bits CLOCK is shifted to the right for each of them."""

ACCESS_FUNCTION = "access"
"""`ptr access(ptr context, i32 lane, i32 space, i64 address, i32 bytes, i32 kind, i32 site)`: the host address of a
checked access, or null after it has written a fault down (the lane then ends as FAULTED). `site` is the instruction's
number in Program.instructions, `bytes` the whole (vector) access, which must be aligned to it."""
