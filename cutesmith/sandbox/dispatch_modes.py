"""`LightMode`: a dispatch mode of torch that does not bring torch's compiler into the process."""

from __future__ import annotations

import sys
from typing import Any

from torch._compile import _disable_dynamo
from torch.utils._python_dispatch import TorchDispatchMode

_COMPILER = "torch._dynamo"


class LightMode(TorchDispatchMode):  # type: ignore[misc,no-untyped-call,unused-ignore]
    """A dispatch mode whose subclasses define `dispatched(func, args, kwargs)` in place of `__torch_dispatch__`.

    Torch keeps its compiler out of a mode by importing it at the first operation, which takes 1.5 s of CPU time in
    every process. Here that happens only once other code has imported it, as code that compiles a function must.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        answer = _uncompiled if _COMPILER in sys.modules else _dispatched
        return answer(self, func, args, kwargs or {})

    def dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an operation; `func` called in here is torch's own."""
        raise NotImplementedError


def _dispatched(mode: LightMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return mode.dispatched(func, args, kwargs)


_uncompiled = _disable_dynamo(_dispatched)
