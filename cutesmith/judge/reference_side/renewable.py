"""The handler of a trusted problem's process that serves one judging after another, each by a reference of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutesmith.judge.reference_side.reference import Reference
from cutesmith.judge.reference_side.requests import Forget, Forgotten, Load
from cutesmith.judge.reference_side.traces import Traces, free_memory
from cutesmith.sandbox.messages import Request


class Renewable:
    """A reference that can be told to forget everything; `make` gives a new one."""

    def __init__(self, make: Callable[[], Reference]) -> None:
        self._make, self._reference = make, make()
        self._before: Traces | None = None

    def handle(self, request: Request[Any]) -> Any:
        """As the reference does, and `Forget`."""
        if isinstance(request, Forget):
            return self.forget(request)
        if isinstance(request, Load) and self._before is None:
            self._before = Traces()
        return self._reference.handle(request)

    def forget(self, request: Forget) -> Forgotten:
        """A new reference, and what the last problem left behind; the process must not serve on with any of it."""
        self._reference.exits.close()
        self._reference = self._make()
        free_memory()
        return Forgotten(() if self._before is None else tuple(self._before.left()))


class RenewableReference(Renewable):
    """The handler of a reference that times nothing."""

    def __init__(self) -> None:
        super().__init__(Reference)
