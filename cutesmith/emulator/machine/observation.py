"""How somebody watches launches as they run: what native code is to write down, and a place around each wave."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from cutesmith.emulator.native.regions import Instrumentation

if TYPE_CHECKING:
    from cutesmith.emulator.machine.launch import LaunchRun
    from cutesmith.emulator.machine.scheduler import NativeCode
    from cutesmith.emulator.machine.wave import Wave


class Observer(Protocol):
    """Somebody who watches: the profiler or the tracer."""

    instrumentation: Instrumentation

    def watch(self, run: LaunchRun, wave: Wave) -> AbstractContextManager[NativeCode]:
        """Watch a wave while the context is open; the scheduler uses the native code that it gives.

        `wave.memory` may be replaced by one that writes down what handlers access.
        """
