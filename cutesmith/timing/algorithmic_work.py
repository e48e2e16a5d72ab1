"""What a function must compute and move at its inputs, whatever a kernel does: declared, or counted off the reference.

Matrix products, convolutions and attention are counted (2 operations a multiply-add) by the dtype that they multiply,
with PyTorch's own formulas; masked halves of causal attention are left out. Pointwise work and reductions are not: they
do not run on tensor cores, and the memory is what they wait for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from cutesmith.problems import contract
from cutesmith.sandbox.dispatch_modes import LightMode
from cutesmith.timing.roofline import Work


def counting(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Any, dict[str, int]]:
    """What the function returns, and its operations by dtype; none where it cannot be run under a counter."""
    counts: Counter[str] = Counter()
    try:
        with _Counted(
            {operation: _tallied(operation, formula, counts) for operation, formula in flop_registry.items()}
        ):
            return function(*inputs), {dtype: count for dtype, count in counts.items() if count}
    except Exception:  # noqa: BLE001 - a reference of its own dispatch modes, say; it may well run without ours
        return function(*inputs), {}


class _Counted(LightMode):  # type: ignore[no-untyped-call,unused-ignore]
    """Calls an operation's formula with its arguments and result, as `FlopCounterMode` does but for modules.

    That one brings torch's compiler into the process: 820 modules, 0.9 s of CPU time.
    """

    def __init__(self, formulas: Mapping[Any, Callable[..., int]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.formulas = formulas

    def dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self:
            parts = func.decompose(*args, **kwargs)  # an operation that stands for others is what they are
        if parts is not NotImplemented:
            return parts
        result = func(*args, **kwargs)
        if formula := self.formulas.get(func._overloadpacket):
            formula(*args, **kwargs, out_val=result)
        return result


def _tallied(operation: Any, formula: Callable[..., int], counts: Counter[str]) -> Callable[..., int]:
    """The formula, which also adds what it gives to the count of the dtype that is multiplied."""

    def tally(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        flops = int(formula(*args, out_val=out_val, **kwargs) * _unmasked(operation, args, kwargs))
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        if tensors:
            counts[str(tensors[:2][-1].dtype).removeprefix("torch.")] += flops
        return flops

    return tally


def _unmasked(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    """The share of an attention's scores that causality leaves; 1 for everything else."""
    schema = getattr(getattr(operation, "default", None), "_schema", None)
    if schema is None:
        return 1.0
    given = {**dict(zip((argument.name for argument in schema.arguments), args, strict=False)), **kwargs}
    if not given.get("is_causal") or "query" not in given or "key" not in given:
        return 1.0
    rows, columns = given["query"].shape[-2], given["key"].shape[-2]
    seen = min(rows, columns)
    return float(seen * (seen + 1) / 2 + (rows - seen) * columns) / (rows * columns) if rows * columns else 1.0


def work_of(module: Any, inputs: Sequence[Any], bytes_moved: int, counted: Mapping[str, int]) -> Work:
    """The work that the problem's file declares, else what was counted; declared operations go by the counted dtype.

    A reference may multiply in more bits than its inputs have, to be exact; a kernel need not, so the narrower dtype
    sets the rate. Raises ContractError for a declaration that is not a number.
    """
    flops = contract.check_work(getattr(module, "ALGORITHMIC_FLOPS", None), "ALGORITHMIC_FLOPS", inputs)
    stated = contract.check_work(getattr(module, "ALGORITHMIC_BYTES", None), "ALGORITHMIC_BYTES", inputs)
    narrowed: Counter[str] = Counter()
    for dtype, count in counted.items():
        narrower = min(dtype, multiplied_dtype(inputs), key=lambda name: getattr(torch, name).itemsize)
        narrowed[narrower] += count
    busiest = max(narrowed, key=lambda dtype: narrowed[dtype], default=multiplied_dtype(inputs))
    by_dtype = dict(narrowed) if flops is None else {busiest: flops}
    return Work(bytes_moved if stated is None else stated, {name: count for name, count in by_dtype.items() if count})


def multiplied_dtype(inputs: Sequence[Any]) -> str:
    """The dtype that products of these inputs are likely to be in: that of the largest floating-point tensor."""
    floats = [value for value in inputs if isinstance(value, torch.Tensor) and value.is_floating_point()]
    largest = max(floats, key=lambda tensor: tensor.numel(), default=None)
    return "float32" if largest is None else str(largest.dtype).removeprefix("torch.")
