"""Who makes an access, for the race check: a thread by the generic proxy, or an engine by the async proxy.

An engine does what a thread has asked for, some time later: the copy engine (TMA, bulk copies) or a tensor core that
reads shared memory. The race check knows an engine's access by its *channel*: the thing by which its completion is
observed. All copies that complete on one mbarrier are a channel, and so are the bulk groups of one thread, one for what
they read and one for what they write, and the wgmma groups of one warp.

- An access is checked when it is asked for, in the name of the lane that asks: it comes after what that lane knows of.
  What threads have written by the generic proxy must moreover be fenced: a `fence.proxy.async` lies on the way from the
  write to the request, in the thread that wrote, in the one that asks or in one between. Reads need no fence.
- Its cell (cells.py) names the channel where others name a thread, and the time at which it was asked for. The bytes
  that an engine writes are PENDING until they land.
- A lane is ordered after it once it knows of that time of the channel: it waited for the mbarrier's phase or for the
  group. Knowledge spreads from lane to lane by all that orders memory, as knowledge of what threads did does.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from typing import NamedTuple

from cutesmith.emulator.program.abi import Array


class Engine(str, enum.Enum):
    """What works beside the threads; the values are its names in findings."""

    COPY = "the copy engine"
    TENSOR_CORE = "the tensor core"

    def __str__(self) -> str:
        return self.value


class Channel(NamedTuple):
    """How completion of an engine's accesses is observed: `key` is an mbarrier's address, a group's owner, …"""

    engine: Engine
    key: Hashable


class Request(NamedTuple):
    """What a lane has asked an engine for: the number of the channel in its cluster, the time, the instruction."""

    lane: int
    channel: int
    time: int
    site: int


class Asked(NamedTuple):
    """The accesses of a request: `size` bytes at each of `addresses` (n,), uint64.

    `lanes`: int64 (n,), other lanes that ask for them together with the request's; None: that lane alone.
    """

    request: Request
    addresses: Array
    size: int
    lanes: Array | None = None
