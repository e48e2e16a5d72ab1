"""Which types a reference computes with: what it narrows itself, a kernel may narrow too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from cutesmith.problems.one_step import OneStep


def types_seen(function: Callable[..., Any], inputs: Sequence[Any]) -> list[str]:
    """Names of the types of inputs, of results on the way and of what is returned; raises what `function` does.

    Values do not count: of a recurrent layer one step is done.
    """
    with torch.no_grad(), OneStep(), _Types() as seen:
        seen.note(inputs)
        seen.note(function(*inputs))
    return sorted(seen.names)


class _Types(TorchFunctionMode):  # type: ignore[misc,no-untyped-call,unused-ignore]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.names: set[str] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.note(result)
        return result

    def note(self, value: Any) -> None:
        """Remember the types of tensors in a value."""
        if isinstance(value, torch.Tensor):
            with torch._C.DisableTorchFunction():
                self.names.add(str(value.dtype).removeprefix("torch."))
        elif isinstance(value, (tuple, list)):
            for part in value:
                self.note(part)
