"""Convolutions as sums over the taps of their weights, with or without the products of zeros around their inputs.

PyTorch's CPU leaves them out; a kernel that reads zeros there, as cuDNN may, multiplies them: a weight that is Inf or
NaN then gives NaN.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_CONVOLUTIONS = {"conv1d": 1, "conv2d": 2, "conv3d": 3}
_TRANSPOSED = {"conv_transpose1d": 1, "conv_transpose2d": 2, "conv_transpose3d": 3}


class ByTaps(TorchFunctionMode):  # type: ignore[misc,no-untyped-call,unused-ignore]
    """Within it, convolutions are sums over the taps of their weights, with or without the products of zeros."""

    def __init__(self, *, multiplies: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.multiplies, self.replaced = multiplies, 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in _CONVOLUTIONS:
            self.replaced += 1
            return _by_batch(self._convolution, _CONVOLUTIONS[name], args, kwargs or {})
        if name in _TRANSPOSED:
            self.replaced += 1
            return _by_batch(self._transposed, _TRANSPOSED[name], args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def _convolution(
        self,
        dims: int,
        input: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> torch.Tensor:
        steps, spread = _each(stride, dims), _each(dilation, dims)
        spans = [apart * (size - 1) for apart, size in zip(spread, weight.shape[2:])]
        if isinstance(padding, str):  # "same" puts the odd one behind
            around = [(span // 2, span - span // 2) if padding == "same" else (0, 0) for span in spans]
        else:
            around = [(size, size) for size in _each(padding, dims)]
        present = torch.ones(input.shape[2:], dtype=torch.bool, device=input.device)
        return self._sum(_padded(input, around), _padded(present, around), weight, bias, (steps, spread, groups))

    def _transposed(
        self,
        dims: int,
        input: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> torch.Tensor:
        """The convolution of the inputs with zeros between them with the weights turned round."""
        steps, spread = _each(stride, dims), _each(dilation, dims)
        sizes = [(size - 1) * step + 1 for size, step in zip(input.shape[2:], steps)]
        places: tuple[Any, ...] = (..., *(slice(None, None, step) for step in steps))
        spaced, present = input.new_zeros(*input.shape[:2], *sizes), torch.zeros(sizes, dtype=torch.bool)
        present = present.to(input.device)
        spaced[places], present[places] = input, True
        spans = [apart * (size - 1) for apart, size in zip(spread, weight.shape[2:])]
        ends = zip(spans, _each(padding, dims), _each(output_padding, dims))
        around = [(span - cut, span - cut + more) for span, cut, more in ends]
        of_groups = weight.reshape(groups, -1, *weight.shape[1:]).transpose(1, 2).flatten(0, 1)
        turned = of_groups.flip(tuple(range(2, 2 + dims)))
        order = ([1] * dims, spread, groups)
        return self._sum(_padded(spaced, around), _padded(present, around), turned, bias, order)

    def _sum(
        self,
        image: torch.Tensor,
        present: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        order: tuple[list[int], list[int], int],
    ) -> torch.Tensor:
        """Over the taps, each a product of matrices at every place; `present`: which elements of the image are real."""
        steps, spread, groups = order
        dims, total = image.ndim - 2, None
        room = zip(image.shape[2:], weight.shape[2:], steps, spread)
        counts = [(size - apart * (taps - 1) - 1) // step + 1 for size, taps, step, apart in room]
        convolve = getattr(functional, f"conv{dims}d")
        for tap in itertools.product(*map(range, weight.shape[2:])):
            where = zip(tap, spread, counts, steps)
            read: tuple[Any, ...] = (
                ...,
                *(slice(t * apart, t * apart + (n - 1) * step + 1, step) for t, apart, n, step in where),
            )
            of_tap = weight[(slice(None), slice(None), *(slice(t, t + 1) for t in tap))]
            product = convolve(image[read], of_tap, groups=groups)
            product = product if self.multiplies else torch.where(present[read], product, 0.0)
            total = product if total is None else total + product
        assert total is not None
        return total if bias is None else total + bias.view(-1, *[1] * dims)


def _by_batch(
    convolution: Callable[..., torch.Tensor], dims: int, args: Sequence[Any], named: Mapping[str, Any]
) -> torch.Tensor:
    """A convolution of a batch; one image alone is a batch of one."""
    image, rest = (args[0], args[1:]) if args else (named["input"], ())
    others = {name: value for name, value in named.items() if name != "input"}
    if image.ndim == dims + 2:
        return convolution(dims, image, *rest, **others)
    return convolution(dims, image.unsqueeze(0), *rest, **others).squeeze(0)


def _each(value: Any, dims: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * dims if len(values) == 1 else values


def _padded(tensor: torch.Tensor, around: Sequence[tuple[int, int]]) -> torch.Tensor:
    """With zeros around its last dimensions; fewer than none cut the ends off."""
    return functional.pad(tensor, [size for pair in reversed(around) for size in pair])
