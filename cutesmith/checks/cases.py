"""Inputs that nobody wrote down: other shapes, layouts and values derived from those of a problem.

Shapes change by symbol: every dimension of the same size is taken for the same one, so that inputs stay consistent. The
reference decides what is allowed: a derived case that it refuses is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

Values = list[Any]
ODD_SIZES = (37, 5, 3, 2)  # of the distinct dimensions, the last one first; small, so that a case costs nothing


def derived_cases(inputs: Sequence[Any], *, shapes: bool) -> list[str]:
    """Names of the cases to derive: values always, shapes and layouts where the contract allows them."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    floats = [value for value in tensors if value.is_floating_point()]
    names = ["large offset", "tiny values", "large values", "NaN and Inf"] if floats else []
    if shapes and any(value.ndim for value in tensors):
        names += ["odd sizes", "empty"] + [f"size 1 for {size}" for size in _sizes(inputs)]
        names += ["strided rows", "misaligned"]
        names += ["transposed memory"] if any(value.ndim >= 2 for value in tensors) else []
    return names


def derive(name: str, inputs: Sequence[Any]) -> Values:
    """The inputs of one derived case; draws from torch's global generator."""
    if name.startswith("size 1 for "):
        return resize(inputs, {int(name.rpartition(" ")[2]): 1})
    return _DERIVATIONS[name](list(inputs))


def _sizes(inputs: Sequence[Any]) -> list[int]:
    """Distinct dimension sizes above 1, those of the last dimensions first."""
    found: dict[int, None] = {}
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    for depth in range(1, max((value.ndim for value in tensors), default=0) + 1):
        for value in tensors:
            if value.ndim >= depth and value.shape[-depth] > 1:
                found[value.shape[-depth]] = None
    return list(found)


def shrink(inputs: Sequence[Any], most_elements: int) -> Values:
    """The same inputs with fewer elements, for a machine that is slow: outer dimensions are halved, the largest first.

    Sizes that are somewhere a last dimension stay as they are: kernels are written for a number of columns. What cannot
    be shrunk so is returned as it is.
    """
    values, tensors = list(inputs), [value for value in inputs if isinstance(value, torch.Tensor)]
    last = {value.shape[-1] for value in tensors if value.ndim}
    outer = {size: size for size in _sizes(inputs) if size not in last}
    total = float(sum(value.numel() for value in tensors))
    while total > most_elements and any(new > 1 for new in outer.values()):
        largest = max(outer, key=outer.__getitem__)
        outer[largest] = max(1, outer[largest] // 2)
        total = sum(_elements(value, outer) for value in tensors)
    return resize(values, outer)


def _elements(tensor: torch.Tensor, sizes: dict[int, int]) -> int:
    return math.prod(sizes.get(size, size) for size in tensor.shape)


def resize(inputs: Sequence[Any], sizes: dict[int, int]) -> Values:
    """Every dimension of a size in `sizes` gets the new one; values are drawn from those that were there."""
    return [_resize(value, sizes) if isinstance(value, torch.Tensor) else value for value in inputs]


def _resize(tensor: torch.Tensor, sizes: dict[int, int]) -> torch.Tensor:
    for dimension, size in enumerate(tensor.shape):
        if (new := sizes.get(size, size)) != size:
            chosen = torch.randint(size, (new,), device=tensor.device)
            tensor = tensor.index_select(dimension, chosen)
    return _fit_indices(tensor, sizes)


def _fit_indices(tensor: torch.Tensor, sizes: dict[int, int]) -> torch.Tensor:
    """Integers that index a dimension (class labels, positions) must stay inside it when it shrinks."""
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool or tensor.numel() == 0:
        return tensor.contiguous()
    largest = int(tensor.max())
    bounds = [new for old, new in sizes.items() if old > largest >= new > 0]
    return torch.where(tensor >= 0, tensor % min(bounds), tensor) if bounds else tensor.contiguous()


def _odd(inputs: Values) -> Values:
    sizes = _sizes(inputs)
    return resize(inputs, {size: ODD_SIZES[min(i, len(ODD_SIZES) - 1)] for i, size in enumerate(sizes)})


def _empty(inputs: Values) -> Values:
    """The outermost dimension becomes 0, every other one small."""
    sizes = _sizes(inputs)
    return resize(inputs, {**dict.fromkeys(sizes[:-1], 8), sizes[-1]: 0}) if sizes else inputs


def _small(inputs: Values) -> Values:
    """Layouts need no large tensors."""
    sizes = _sizes(inputs)
    return resize(inputs, {size: (64, 24, 4, 2)[min(i, 3)] for i, size in enumerate(sizes)})


def _each(change: Callable[[torch.Tensor], torch.Tensor], inputs: Values) -> Values:
    return [change(value) if isinstance(value, torch.Tensor) else value for value in inputs]


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """Rows further apart than they are long: a slice of a wider tensor."""
    if tensor.ndim == 0:
        return tensor
    wide = torch.cat([tensor, tensor.flip(-1), tensor], dim=-1)
    return wide[..., : tensor.shape[-1]]


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2) if tensor.ndim >= 2 else tensor


def _misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """The same values one element past an aligned address."""
    flat = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)[1:]
    return flat.view(tensor.shape).copy_(tensor)


def _floats(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Values], Values]:
    """Change the float tensors with the most elements: weights and scales stay what they are."""

    def derivation(inputs: Values) -> Values:
        largest = max(v.numel() for v in inputs if isinstance(v, torch.Tensor) and v.is_floating_point())
        return _each(lambda v: change(v) if v.is_floating_point() and v.numel() == largest else v, inputs)

    return derivation


def _specials(tensor: torch.Tensor) -> torch.Tensor:
    """NaN, Inf and -Inf at a few random places."""
    planted = tensor.clone(memory_format=torch.contiguous_format)
    if planted.numel():
        for value in (float("nan"), float("inf"), -float("inf")):
            places = torch.randint(planted.numel(), (3,), device=planted.device)
            planted.view(-1)[places] = value
    return planted


_DERIVATIONS: dict[str, Callable[[Values], Values]] = {
    "odd sizes": _odd,
    "empty": _empty,
    "strided rows": lambda inputs: _each(_strided, _small(inputs)),
    "transposed memory": lambda inputs: _each(_transposed, _small(inputs)),
    "misaligned": lambda inputs: _each(_misaligned, _small(inputs)),
    "large offset": _floats(lambda tensor: tensor + 1000),
    "tiny values": _floats(lambda tensor: tensor * 2**-12),
    "large values": _floats(lambda tensor: tensor * 64),
    "NaN and Inf": _floats(_specials),
}
