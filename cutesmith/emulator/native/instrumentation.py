"""What native code writes down while it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Instrumentation:
    """What native code writes down while it runs.

    `profile`: how often each basic block ran (COUNTS); `count_lanes`: and each lane of it (LANE_COUNTS).
    `accesses`: every checked
    access (ACCESS_LOG). `trace`: every register that is set (TRACE). The layouts are those of `native/logs.py`.
    """

    profile: bool = False
    count_lanes: bool = False
    accesses: bool = False
    trace: bool = False


NO_INSTRUMENTATION = Instrumentation()
