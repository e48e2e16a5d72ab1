"""The sizes, strides and types of results, asked of PyTorch once for each operation and kind of operands.

PyTorch finds them by long code in Python, 200 µs an operation. A function is traced a dozen times, on larger operands:
most operations were seen before, and those on each element of contiguous tensors are the same at all sizes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from cutesmith.patterns.graph.shapes import Shape, broadcast

MOST_KNOWN = 100_000
"""Operations and operands that are remembered: 100 MB."""

Likeness = tuple[Shape, Shape, torch.dtype]
_known: dict[Hashable, Likeness | list[Likeness]] = {}
_types: dict[Hashable, torch.dtype] = {}


def result_of(func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """What the operation gives for tensors without storage: new ones of the sizes that PyTorch once answered.

    PyTorch is asked each time about operations that write or give views, and about operands with values.
    """
    operands = (*args, *named.values())
    tensors = _tensors(operands)
    if not _makes_tensors(func) or not all(each.is_meta for each in tensors):
        return func(*args, **named)
    shape = _contiguous(tensors) if torch.Tag.pointwise in func.tags else None
    key = (func, torch.get_default_dtype(), *named, *(_key(each, sizes=shape is None) for each in operands))
    if shape is not None and key in _types:
        return torch.empty(shape, dtype=_types[key], device="meta")
    if shape is None and key in _known:
        known = _known[key]
        return tuple(map(_made, known)) if isinstance(known, list) else _made(known)
    result = _typed(func(*args, **named), func, args, named)
    if shape is None:
        _remember(key, result, tensors)
    elif (
        len(_types) < MOST_KNOWN
        and isinstance(result, torch.Tensor)
        and _likeness(result) == _likeness(result.new_empty(shape))
    ):
        _types[key] = result.dtype
    return result


def _typed(result: Any, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The result with the type that the operation gives it, asked of single numbers where operands' types differ.

    What stands for an operation without storage is other code: `huber_loss` of float32 and float64 is float32 on a CPU
    and a GPU, and so is `binary_cross_entropy_with_logits` of float64 and float32, which PyTorch 2.11 calls float64.
    """
    floats = {each.dtype for each in _tensors((*args, *named.values())) if each.is_floating_point()}
    if len(floats) < 2 or not isinstance(result, torch.Tensor):
        return result
    with _disable_current_modes(), suppress(RuntimeError):
        found = func(*map(_single, args), **{name: _single(value) for name, value in named.items()})
        if found.dtype != result.dtype:
            return torch.empty_strided(result.shape, result.stride(), dtype=found.dtype, device="meta")
    return result


def _single(value: Any) -> Any:
    """A tensor of one number on the CPU in place of each tensor."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_single, value))
    return torch.ones([1] * value.dim(), dtype=value.dtype) if isinstance(value, torch.Tensor) else value


@cache
def _makes_tensors(func: Any) -> bool:
    """Whether the operation says that it neither writes nor gives views; zeros of derivatives are of a kind apart."""
    if func is torch.ops.aten._efficientzerotensor.default:
        return False
    return not func._schema.is_mutable and not any(each.alias_info for each in func._schema.returns)


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    found = [each for each in values if isinstance(each, torch.Tensor)]
    return found + [each for value in values if isinstance(value, (list, tuple)) for each in _tensors(value)]


def _contiguous(tensors: list[torch.Tensor]) -> Shape | None:
    """What contiguous operands broadcast to; None for others, and where there is a 1, whose stride may be anything."""
    if not tensors or not all(each.is_contiguous() for each in tensors):
        return None
    try:
        shape = broadcast([tuple(each.shape) for each in tensors])
    except RuntimeError:  # which PyTorch says in its own words
        return None
    return shape if all(size > 1 for size in shape) else None


def _key(value: Any, *, sizes: bool) -> Hashable:
    """All that the results depend on; without sizes all that the type of a pointwise one does."""
    if isinstance(value, torch.Tensor):
        return (value.dtype, tuple(value.shape), value.stride()) if sizes else (value.dtype, value.dim())
    if isinstance(value, (list, tuple)):
        return tuple(_key(each, sizes=sizes) for each in value)
    return type(value), None if type(value) is float and not sizes else value


def _remember(key: Hashable, result: Any, operands: list[torch.Tensor]) -> None:
    """Results that lie in memory of their own, and fill it: `dropout` may give its operand, whatever it says."""
    results = result if isinstance(result, tuple) else (result,)
    if len(_known) >= MOST_KNOWN or not all(isinstance(each, torch.Tensor) and each.is_meta for each in results):
        return
    fills = all(_bytes(each) == _bytes(_made(_likeness(each))) for each in results)
    memories = set(map(_memory, results))
    if fills and len(memories) == len(results) and not any(_memory(each) in memories for each in operands):
        _known[key] = [*map(_likeness, results)] if isinstance(result, tuple) else _likeness(result)


def _memory(tensor: torch.Tensor) -> int:
    place: int = tensor.untyped_storage()._cdata
    return place


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes()


def _likeness(tensor: torch.Tensor) -> Likeness:
    return tuple(tensor.shape), tensor.stride(), tensor.dtype


def _made(likeness: Likeness) -> torch.Tensor:
    shape, strides, dtype = likeness
    return torch.empty_strided(shape, strides, dtype=dtype, device="meta")
