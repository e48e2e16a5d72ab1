"""Whether outputs have the number, shapes, dtypes and strides of the reference's (rule O13)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cutesmith.judge.transfer import tensors
from cutesmith.judge.transfer.requests import TensorLayout
from cutesmith.verdicts import Mechanism, Rule, Violation


def structure_violation(
    outputs: Sequence[TensorLayout], is_tuple: bool, expected: Sequence[torch.Tensor | TensorLayout], wants_tuple: bool
) -> Violation | None:
    """What is wrong with number, shape, dtype or strides of the outputs (rule O13)."""
    if is_tuple != wants_tuple or len(outputs) != len(expected):
        got, wanted = _arity(len(outputs), is_tuple), _arity(len(expected), wants_tuple)
        return _violation(f"kernel_fn returns {got} where reference_fn returns {wanted}")
    for index, (got_layout, want) in enumerate(zip(outputs, expected)):
        wanted_layout = tensors.describe_layout(want) if isinstance(want, torch.Tensor) else want
        if got_layout.dtype != wanted_layout.dtype:
            return _violation(f"output {index} has dtype {got_layout.dtype} instead of {wanted_layout.dtype}")
        if got_layout.shape != wanted_layout.shape:
            shapes = f"shape {list(got_layout.shape)} instead of {list(wanted_layout.shape)}"
            return _violation(f"output {index} has {shapes}")
        if not _stride_fits(got_layout, wanted_layout):
            strides = f"strides {list(got_layout.stride)} instead of {list(wanted_layout.stride)}"
            return _violation(f"output {index} has {strides}")
    return None


def _violation(text: str) -> Violation:
    return Violation(Rule.O13, Mechanism.STRUCTURE, text, reject=False)


def _arity(count: int, is_tuple: bool) -> str:
    return f"a tuple of {count}" if is_tuple else "a tensor"


def _stride_fits(got: TensorLayout, wanted: TensorLayout) -> bool:
    """Equal to the reference's strides, or contiguous; the stride of a dimension of size 1 says nothing."""
    contiguous = torch.empty(got.shape, device="meta").stride()
    significant = [index for index, size in enumerate(got.shape) if size > 1]
    if 0 in got.shape:
        return True
    return any(all(got.stride[i] == want[i] for i in significant) for want in (wanted.stride, contiguous))
