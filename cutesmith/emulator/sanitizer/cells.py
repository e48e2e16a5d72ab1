"""The shadow cell: 64 bits that say who accessed a byte (or an element) last, when, and by which instruction.

From the top: whether an engine made the access (1 bit, see actors.py), serial number of the block in the launch (19
bits, from 1), thread in the block or channel of the engine (11), time (17), site (16). 0 is "never". Time counts
synchronisation events of the block's cluster (Sanitizer.TIME); of an engine it is that at which a thread asked for it.
"""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.program.abi import Array

SITE_BITS, TIME_BITS, THREAD_BITS, SERIAL_BITS = 16, 17, 11, 19
TIME_SHIFT = SITE_BITS
THREAD_SHIFT = TIME_SHIFT + TIME_BITS
SERIAL_SHIFT = THREAD_SHIFT + THREAD_BITS
ENGINE = 1 << 63
MAX_SITE = (1 << SITE_BITS) - 1  # stands for all later ones too; they are taken for strong
MAX_TIME = (1 << TIME_BITS) - 1  # when time stands still, nothing counts as a race
MAX_SERIAL = (1 << SERIAL_BITS) - 1

MOST_THREADS = 1024  # thread numbers below are threads of the block; the others:
WARP_WRITERS = 1024  # + warp: threads of that warp wrote one and the same value
EVERYWHERE = 2045  # read by threads of several blocks: of the cluster whose first block is named, or of any (serial 0)
PENDING = 2046  # an asynchronous copy that has not landed; time is MAX_TIME
MOST_CHANNELS = 2045  # of engines in a cluster
SEVERAL = 2047  # read by several threads of the block (which warps: see the masks), or written by them with one value


def pack(serial: Array, thread: Array | int, time: Array | int, site: Array | int) -> Array:
    """Cells as uint64."""
    cells = np.minimum(np.asarray(site, np.uint64), np.uint64(MAX_SITE))
    for part, shift in ((serial, SERIAL_SHIFT), (thread, THREAD_SHIFT), (time, TIME_SHIFT)):
        cells = cells | np.asarray(part, np.uint64) << np.uint64(shift)
    return np.asarray(cells, np.uint64)


def thread_of(cell: int) -> int:
    """The thread in the block, or one of the codes above."""
    return cell >> THREAD_SHIFT & ((1 << THREAD_BITS) - 1)


def serial_of(cell: int) -> int:
    """The block's serial number."""
    return cell >> SERIAL_SHIFT & MAX_SERIAL


def is_of_engine(cell: int) -> bool:
    """Whether an engine made the access."""
    return bool(cell & ENGINE)
