"""Attributes replaced for a while and put back exactly as they were."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any

_ABSENT = object()


class Patches:
    """A context manager that owns replaced attributes; on exit they are restored, the last one first."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace `owner.name`; an attribute that was inherited or absent is deleted again at exit."""
        before = vars(owner).get(name, _ABSENT)
        if before is _ABSENT:
            self._undo.append(partial(delattr, owner, name))
        else:
            self._undo.append(partial(setattr, owner, name, before))
        setattr(owner, name, value)

    def set_existing(self, owner: Any, values: Mapping[str, object]) -> None:
        """Replace those of `values` that `owner` has: an older or newer release may lack some."""
        for name, value in values.items():
            if hasattr(owner, name):
                self.set(owner, name, value)

    def at_exit(self, action: Callable[[], None]) -> None:
        """Run `action` at exit, in its turn."""
        self._undo.append(action)

    def __enter__(self) -> Patches:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            while self._undo:
                self._undo.pop()()
        finally:
            if self._undo:  # one action failed: the others are done all the same
                self.__exit__(kind, error, tb)
