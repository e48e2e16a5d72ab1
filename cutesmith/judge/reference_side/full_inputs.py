"""`get_inputs()` at full size on the reference's side, where the emulated GPU runs its cases with less."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from cutesmith.judge.draws.kinds import Structure, structure_of
from cutesmith.judge.reference_side.cases import OF_A_BEGINNING, Values, count_elements
from cutesmith.judge.reference_side.declared_sizes import DeclaredSizes
from cutesmith.judge.reference_side.longer_cases import Growth, Longer, Sizes, long_sizes
from cutesmith.judge.reference_side.requests import Draw
from cutesmith.judge.transfer import tensors
from cutesmith.judge.transfer.requests import Scalar, TensorFile, TensorLayout

FEW_VALUES, MOST_INTEGER_BYTES = 1 << 16, 64 << 20  # of a tensor that the candidate gets with its values
MULTIPLY_ADDS = 1 << 26  # of a longer case: about a second on the emulated GPU's tensor cores
REFERENCE_SECONDS = 0.5  # of CPU time that the reference may take on a longer case
FEW_BLOCKS = 1 << 6  # times the multiply-adds, where only some blocks of the kernel run
FEW_BLOCKS_SECONDS, FEW_BLOCKS_BYTES = 1.0, 160 << 20  # of the reference and of all inputs there


@dataclass(frozen=True)
class FullInputs:
    """What `get_inputs()` gave last, and the sizes that it is shrunk to: drawing it again would take seconds.

    `declared`: how the file itself makes it smaller; then no case takes anything away from it.
    """

    values: Values
    shrunk: Sizes
    declared: DeclaredSizes | None = None

    @cached_property
    def varied(self) -> bool:
        """Whether other rows and columns of it are as good as another draw: floats in no order, all made smaller."""
        return all(
            isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and any(size in self.shrunk for size in value.shape)
            and structure_of(value) not in (*OF_A_BEGINNING, Structure.PERMUTATION)
            for value in self.values
        )

    def about(self, refusal: Callable[[Values], str]) -> dict[str, Any]:
        """Which sizes longer cases keep, and how many elements there are."""
        elements = count_elements([value for value in self.values if isinstance(value, torch.Tensor)], {})
        sizes = self.declared.long_sizes() if self.declared else long_sizes(self.values, self.shrunk, refusal)
        return {"long_sizes": tuple(sizes), "elements": elements}

    def longer(self, request: Draw, reference_fn: Callable[..., Any]) -> Longer:
        """The sizes of a case that keeps the size `longer`, or that has `beyond` elements."""
        if self.declared and request.longer:
            return self.declared.longest(request.longer, request.elements, partial(too_much, reference_fn))
        if self.declared and not request.some_blocks:
            return Longer(0, 0, {}, "EMULATED_SIZES are the sizes of this problem's smaller inputs")
        growth = Growth(
            inputs=self.values,
            shrunk=self.shrunk,
            other_columns=request.columns,
            elements=request.elements,
            refusal=lambda values: too_much(reference_fn, values, few_blocks=request.some_blocks),
        )
        return growth.longest(request.longer) if request.longer else growth.beyond(request.beyond)

    def layout(self, folder: Path) -> tuple[Scalar | TensorFile | TensorLayout, ...]:
        """Layouts of all; with their values, in files, what host code may read: what is small, or no float."""
        folder.mkdir(parents=True, exist_ok=True)
        return tuple(_described(value, folder / f"full{index}") for index, value in enumerate(self.values))

    def ran_as(self, values: Sequence[Any]) -> tuple[str, str]:
        """The shape of the largest input, such as "16384x8192", and what it is among other `values`."""
        elements = [value.numel() if isinstance(value, torch.Tensor) else -1 for value in self.values]
        largest = elements.index(max(elements))
        full, smaller = ("x".join(map(str, inputs[largest].shape)) for inputs in (self.values, values))
        return full, smaller


def too_much(reference_fn: Callable[..., Any], values: Sequence[Any], *, few_blocks: bool = False) -> str:
    """Why a longer case cannot have these inputs: the reference refuses them or computes too much; else empty.

    `few_blocks`: the kernel does not compute all of it.
    """
    seconds_allowed = FEW_BLOCKS_SECONDS if few_blocks else REFERENCE_SECONDS
    if few_blocks and (size := tensors.bytes_of_values(values)) > FEW_BLOCKS_BYTES:
        return f"its inputs have {size:,} bytes"
    begin = time.thread_time()
    try:
        with torch.no_grad(), _Products() as products:
            reference_fn(*[tensors.copy_of(value) for value in values])
    except Exception as error:  # noqa: BLE001 - whatever it is, the reference refuses these inputs
        return f"reference_fn refuses it: {type(error).__name__}: {str(error)[:300]}"
    seconds = time.thread_time() - begin
    if products.multiply_adds > MULTIPLY_ADDS * (FEW_BLOCKS if few_blocks else 1):
        return f"{products.multiply_adds:,} multiply-adds take the emulated GPU too long"
    return f"reference_fn takes {seconds:.1f} s on it" if seconds > seconds_allowed else ""


class _Products(TorchFunctionMode):  # type: ignore[misc,no-untyped-call,unused-ignore]
    """Counts what matrix products and convolutions multiply; a dispatch mode would take 1.3 s of imports for it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.multiply_adds = 0

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        factors = [value for value in args if isinstance(value, torch.Tensor)]
        if name in _PRODUCTS and len(factors) >= 2 and isinstance(result, torch.Tensor):
            self.multiply_adds += _PRODUCTS[name](result, *factors[-2:] if name in _WITH_ADDEND else factors[:2])
        return result


_WITH_ADDEND = ("addmm", "baddbmm")
_MATRICES = ("matmul", "__matmul__", "mm", "bmm", "mv", "linear", *_WITH_ADDEND)
_PRODUCTS: dict[str, Callable[..., int]] = {  # of the result and two factors
    **dict.fromkeys(_MATRICES, lambda result, left, _: result.numel() * left.shape[-1]),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), lambda result, _, weight: result.numel() * weight[0].numel()),
    "scaled_dot_product_attention": lambda _, query, key: 2 * query.numel() * key.shape[-2],
    # Exact for one product of matrices, and more for a batch of them:
    "einsum": lambda result, left, right: math.isqrt(result.numel() * left.numel() * right.numel()),
}


def _described(value: Any, path: Path) -> Scalar | TensorFile | TensorLayout:
    if not isinstance(value, torch.Tensor) or value.numel() <= FEW_VALUES:
        return tensors.write_value(value, path)
    readable = not value.is_floating_point() and value.numel() * value.element_size() <= MOST_INTEGER_BYTES
    return tensors.write_value(value, path) if readable else tensors.describe_layout(value)
