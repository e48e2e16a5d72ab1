"""How launches are observed as they run: what native code writes down, and a place around each wave."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from cutesmith.emulator.machine.memory import Memory
from cutesmith.emulator.machine.scheduler import NativeCode
from cutesmith.emulator.native.logs import Instrumentation
from cutesmith.emulator.state.geometry import Geometry
from cutesmith.emulator.state.wave import Wave


class Executors(NamedTuple):
    """What runs a wave: its native code, and the memory that handlers use."""

    native: NativeCode
    memory: Memory


class Observer(Protocol):
    """The profiler or the tracer."""

    instrumentation: Instrumentation

    def watch(self, geometry: Geometry, wave: Wave, executors: Executors) -> AbstractContextManager[Executors]:
        """Watch a wave of a launch while the context is open; the scheduler uses the executors that it gives.

        All waves of a launch bring the same `geometry`.
        """
