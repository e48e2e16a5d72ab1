"""The handler of a trusted problem's process that serves one judging after another, each by a reference of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutesmith.judge.reference_side.reference import Reference
from cutesmith.judge.reference_side.traces import Traces, free_memory


class Renewable:
    """A reference that can be told to forget everything; `make` gives a new one."""

    def __init__(self, make: Callable[[], Reference]) -> None:
        self._make, self._reference = make, make()
        self._before: Traces | None = None

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """As the reference does; of {"do": "forget"} what its problem has "left" behind, with which nobody goes on."""
        if request["do"] == "forget":
            return {"left": self._forget()}
        if request["do"] == "load" and self._before is None:
            self._before = Traces()
        return self._reference.handle(request)

    def _forget(self) -> list[str]:
        self._reference.exits.close()
        self._reference = self._make()
        free_memory()
        return [] if self._before is None else self._before.left()


class RenewableReference(Renewable):
    """The handler of a reference that times nothing."""

    def __init__(self) -> None:
        super().__init__(Reference)
