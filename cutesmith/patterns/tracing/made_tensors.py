"""Tensors that a function makes of Python numbers, such as `torch.tensor(0.0, device=x.device)`, and masks of a truth.

Where the function runs on tensors without storage, such a tensor has no values either; a torch-function mode knows its
numbers before they are gone. Of a mask without dimensions PyTorch would read the value, to write everything or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

_MAKERS = (torch.tensor, torch.as_tensor, torch.scalar_tensor, torch.asarray)
_DIFFERENTIATE = (torch._C._functorch.TransformType.Grad, torch._C._functorch.TransformType.Jvp)
_REQUIRE = (torch.Tensor.requires_grad_, torch.Tensor.requires_grad.__set__)  # type: ignore[attr-defined]
_INDEXING = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)


class Differentiated(Exception):
    """A function is differentiated in inference mode: autograd finds no gradients, torch.func 0 before torch 2.13."""


class MadeTensors(TorchFunctionMode):
    """Gives each tensor that is made of numbers to `constant(tensor on the CPU)`, which returns its stand-in.

    `y[truth] = value` becomes a choice at every place. `whole`: the function runs in inference mode, which leaves
    composite operations whole; raises `Differentiated` there.
    """

    def __init__(self, constant: Callable[[Any, torch.Tensor], torch.Tensor], *, whole: bool) -> None:
        super().__init__()
        self._constant, self._whole = constant, whole

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if self._whole and torch.is_inference_mode_enabled() and (func in _REQUIRE or _is_differentiated()):
            raise Differentiated
        if func is torch.Tensor.__setitem__ and _is_truth(args[1]):
            return _write_where(*args)
        if func in _INDEXING:
            return func(args[0], self._without_lists(args[1]), *args[2:])
        if func not in _MAKERS or not args or not _of_numbers(args[0]) or "device" not in named:
            return func(*args, **named)
        with _disable_current_modes():
            return self._constant(args[0], torch.tensor(args[0], dtype=named.get("dtype")))

    def _without_lists(self, index: Any) -> Any:
        """An index with tensors in place of lists of integers, as in `x[:, [2, 0]]`."""
        if isinstance(index, tuple):
            return tuple(map(self._without_lists, index))
        if not isinstance(index, list) or not all(type(each) is int for each in index):
            return index
        with _disable_current_modes():
            return self._constant(index, torch.tensor(index, dtype=torch.int64))


def _is_differentiated() -> bool:
    transform = torch._C._functorch.peek_interpreter_stack()
    return transform is not None and transform.key() in _DIFFERENTIATE


def _of_numbers(data: Any) -> bool:
    return all(map(_of_numbers, data)) if isinstance(data, (list, tuple)) else isinstance(data, (bool, int, float))


def _is_truth(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype is torch.bool and not index.dim()


def _write_where(target: torch.Tensor, truth: torch.Tensor, value: Any) -> None:
    """`target[truth] = value`: the value may have one dimension more than the target, of size 1."""
    if isinstance(value, torch.Tensor):
        value = value.to(target.dtype)
        value = value.squeeze(0) if value.dim() > target.dim() else value
    target.copy_(torch.where(truth, value, target))
