"""Which types a reference computes with: what it narrows itself, a kernel may narrow too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


def types_seen(function: Callable[..., Any], inputs: Sequence[Any]) -> list[str]:
    """Names of the types of inputs, of results on the way and of what is returned; raises what `function` does."""
    with torch.no_grad(), _Types() as seen:
        seen.note(inputs)
        seen.note(function(*inputs))
    return sorted(seen.names)


RECURRENT = frozenset(("lstm", "gru", "rnn_tanh", "rnn_relu"))


def _one_step(func: Any, args: Sequence[Any]) -> tuple[torch.Tensor, ...] | None:
    """What a recurrent layer gives, of its first step in the place of all; None of another function.

    All steps have the same types, and those of 512 took 33 s.
    """
    if getattr(func, "__name__", "") not in RECURRENT or len(args) != 9:  # sequences of several lengths have other ones
        return None
    x, *others, is_batch_first = args
    dim, steps = int(is_batch_first), x.shape[int(is_batch_first)]
    states, *last = func(x.narrow(dim, 0, 1), *others, is_batch_first)
    return states.repeat_interleave(steps, dim), *last


class _Types(TorchFunctionMode):  # type: ignore[misc,no-untyped-call,unused-ignore]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.names: set[str] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = _one_step(func, args) or func(*args, **(kwargs or {}))
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
