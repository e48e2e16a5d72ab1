"""Backward passes over tensors that pose as CUDA tensors.

While `Tensor.backward` runs, PyTorch has taken its function modes off: a Python `backward` would see CPU tensors.
Gradients that PyTorch itself computes come from no Python call that could mark them either.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.overrides
from torch.utils._python_dispatch import TorchDispatchMode

from cutesmith.recording.facade import Facade
from cutesmith.recording.patches import Patches

_ENGINE = "_engine_run_backward"  # torch.autograd's name for the function that runs a graph


def backward_within(patches: Patches, facade: Facade) -> None:
    """Let every backward pass run within the facade: in Python code on "cuda", with gradients on "cuda"."""
    original = getattr(torch.autograd, _ENGINE, None)
    if original is None:
        return

    def run_backward(outputs: Any, gradients: Any, *args: Any, **kwargs: Any) -> Any:
        for output, gradient in zip(outputs, gradients, strict=True):  # the one of a scalar is made without a mark
            if isinstance(output, torch.Tensor) and isinstance(gradient, torch.Tensor) and facade.says_cuda(output):
                facade.mark(gradient)
        with entered(facade), _Marks(facade):
            return original(outputs, gradients, *args, **kwargs)

    patches.set(torch.autograd, _ENGINE, run_backward)


def entered(facade: Facade) -> AbstractContextManager[object]:
    """Within it the facade sees the thread's calls, also where PyTorch has taken its modes off."""
    active: list[Any] = torch.overrides._get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return nullcontext() if facade.mode in active else facade.mode


class _Marks(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lets what an operation makes of posing tensors pose too, below autograd."""

    def __init__(self, facade: Facade) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._facade = facade

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [value for value in flat(args) if isinstance(value, torch.Tensor)]
        if any(self._facade.says_cuda(value) for value in given):
            for made in flat((result,)):
                if isinstance(made, torch.Tensor) and not any(made is value for value in given):
                    self._facade.mark(made)
        return result


def flat(values: tuple[Any, ...]) -> list[Any]:
    """The values, and those of lists and tuples among them."""
    return [inner for value in values for inner in (value if isinstance(value, (tuple, list)) else (value,))]
