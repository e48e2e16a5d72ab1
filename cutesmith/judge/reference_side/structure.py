"""Whether outputs have the number, shapes, dtypes and strides of the reference's (rule O13)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cutesmith.judge.crossing import tensors
from cutesmith.judge.crossing.tensors import Description
from cutesmith.verdicts import Mechanism, Rule, Violation


def structure_violation(
    outputs: Sequence[Description], is_tuple: bool, expected: Sequence[torch.Tensor | Description], wants_tuple: bool
) -> Violation | None:
    """What is wrong with number, shape, dtype or strides of the outputs (rule O13)."""
    if is_tuple != wants_tuple or len(outputs) != len(expected):
        got, wanted = _arity(len(outputs), is_tuple), _arity(len(expected), wants_tuple)
        return _violation(f"kernel_fn returns {got} where reference_fn returns {wanted}")
    for index, (got_layout, want) in enumerate(zip(outputs, expected)):
        wanted_layout = tensors.describe_layout(want) if isinstance(want, torch.Tensor) else want
        for what in ("dtype", "shape"):
            if got_layout[what] != wanted_layout[what]:
                return _violation(f"output {index} has {what} {got_layout[what]} instead of {wanted_layout[what]}")
        if not _stride_fits(got_layout, wanted_layout):
            strides = f"strides {got_layout['stride']} instead of {wanted_layout['stride']}"
            return _violation(f"output {index} has {strides}")
    return None


def _violation(text: str) -> Violation:
    return Violation(Rule.O13, Mechanism.STRUCTURE, text, reject=False)


def _arity(count: int, is_tuple: bool) -> str:
    return f"a tuple of {count}" if is_tuple else "a tensor"


def _stride_fits(got: Description, wanted: Description) -> bool:
    """Equal to the reference's strides, or contiguous; the stride of a dimension of size 1 says nothing."""
    contiguous = torch.empty(got["shape"], device="meta").stride()
    significant = [index for index, size in enumerate(got["shape"]) if size > 1]
    if 0 in got["shape"]:
        return True
    return any(all(got["stride"][i] == want[i] for i in significant) for want in (wanted["stride"], contiguous))
