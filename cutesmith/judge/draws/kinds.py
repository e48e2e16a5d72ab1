"""What kind of input each one is, as far as its drawn values tell: its role, its range, and a structure to rely on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch

from cutesmith.problems.arguments import is_option, names_of

SAMPLE = 1 << 18  # elements of a corner that are looked at: copies of 2 MiB, which the allocator gives back
FEW = 1 << 13  # of a corner that is looked at first: in four dimensions its rows are still 8 long
SHARES_OFF_BY = 2.0**-6  # of 1: rows of bfloat16 that were divided by their sum
NEAR_THE_END = 0.02  # of the range: a random draw from [0, 1) comes so close to both ends


class Role(str, Enum):
    """What an input is made of."""

    FLOAT = "float"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    SCALAR = "scalar"
    OPTION = "option"
    OTHER = "other"


class Structure(str, Enum):
    """What a kernel could take for granted instead of reading the input."""

    NONE = ""
    CONSTANT = "one value everywhere"
    SEQUENCE = "equally spaced values"
    SORTED = "sorted rows"
    TRIANGLE = "a triangle"
    IDENTITY = "the identity matrix"
    SYMMETRIC = "a symmetric matrix"
    TWO_VALUES = "two values"
    PERMUTATION = "each value once"


@dataclass(frozen=True)
class Kind:
    """One input of the reference.

    `low` and `high` are the ends of what was drawn, rounded to 0 and 1 where a draw comes near them; infinities are not
    ends. `shares`: the rows of a float tensor sum to 1. `distinct`: no two of a row of integers are equal. `domain` is
    what the problem declares of it (`domains.Domain`). `value`: that of a scalar.
    """

    name: str
    role: Role
    structure: Structure = Structure.NONE
    low: float = 0.0
    high: float = 0.0
    shares: bool = False
    distinct: bool = False
    domain: str = ""
    value: float | None = None

    @property
    def bounded(self) -> bool:
        """Whether other draws have to stay between `low` and `high`."""
        return self.role is Role.FLOAT and self.structure is not Structure.CONSTANT and self.low >= 0.0

    @property
    def words(self) -> str:
        """Such as "float, one value everywhere" or "float from 0 to 1, rows sum to 1"."""
        ends = f" from {self.low:.4g} to {self.high:.4g}" if self.bounded or self.role is Role.INTEGER else ""
        return ", ".join(
            filter(None, (f"{self.role.value}{ends}", self.structure.value, "rows sum to 1" * self.shares))
        )


def kinds_of(reference_fn: Callable[..., Any], values: Sequence[Any]) -> tuple[Kind, ...]:
    """The kind of each input, by its values; names are those of the reference's parameters. A nesting has none."""
    return tuple(kind_of(name, value) for name, value in zip(names_of(reference_fn, values, unnamed="input "), values))


def with_ends_of(kind: Kind, tensor: Any, inputs: Sequence[Any]) -> Kind:
    """The kind of integers with the ends of those at hand, which index fewer elements where inputs were made smaller.

    The upper one is that of the sizes of other inputs which the integers come near to, if their type holds it. Kinds
    of anything else stay.
    """
    if kind.role is not Role.INTEGER or not tensor.numel():
        return kind
    low, high = _ends(tensor)
    others = [value for value in inputs if isinstance(value, torch.Tensor) and value is not tensor]
    most = min(2 * (high + 1), torch.iinfo(tensor.dtype).max + 1)
    sizes = [size for value in others for size in value.shape if high < size <= most]
    return replace(kind, low=low, high=float(min(sizes) - 1) if sizes else high)


def kind_of(name: str, value: Any) -> Kind:
    """The kind of one input. Tensors without elements, complex and 8-bit float ones are of no kind that is drawn."""
    if isinstance(value, (bool, int, float)):
        return Kind(name, Role.SCALAR, low=float(value), high=float(value), value=value)
    if is_option(value):
        return Kind(name, Role.OPTION)
    if not isinstance(value, torch.Tensor) or not value.numel() or value.is_complex():
        return Kind(name, Role.OTHER)
    with torch._C.DisableTorchFunction():  # that tensors pose as CUDA's would cost more than the numbers do
        return _kind_of_tensor(name, value)


def structure_of(tensor: torch.Tensor) -> Structure:
    """The structure of a tensor alone; none of one without elements, of complex numbers or of 8-bit floats."""
    with torch._C.DisableTorchFunction():
        narrow = tensor.is_floating_point() and tensor.element_size() < 2
        return Structure.NONE if narrow or tensor.is_complex() or not tensor.numel() else _structure(tensor)


def _kind_of_tensor(name: str, value: torch.Tensor) -> Kind:
    if value.dtype is torch.bool:
        return Kind(name, Role.BOOLEAN, _structure(value))
    if not value.is_floating_point():
        low, high = _ends(value)
        return Kind(name, Role.INTEGER, _structure(value), low, high, distinct=is_distinct(value))
    if value.element_size() < 2:
        return Kind(name, Role.OTHER)
    low, high = _snapped(*_ends(value))
    return Kind(name, Role.FLOAT, _structure(value), low, high, shares=low >= 0 and _rows_sum_to_one(value))


def _ends(tensor: torch.Tensor) -> tuple[float, float]:
    """The least and the largest value that is finite."""
    flat = _corner(tensor).reshape(-1)
    if tensor.is_floating_point():
        flat = flat[flat.isfinite()]
    return (float(flat.min()), float(flat.max())) if flat.numel() else (0.0, 0.0)


def _snapped(low: float, high: float) -> tuple[float, float]:
    """Ends that a draw only comes near: 0 from above, and 1 from below."""
    near = NEAR_THE_END * (high - low)
    return (0.0 if 0 < low <= near else low), (1.0 if 1 - near <= high < 1 and low >= 0 else high)


def _rows_sum_to_one(tensor: torch.Tensor) -> bool:
    if not tensor.ndim or tensor.shape[-1] < 2:
        return False
    sums = _rows(tensor)[: max(1, SAMPLE // tensor.shape[-1])].double().sum(-1)
    return bool(((sums - 1).abs() < SHARES_OFF_BY).all())


def _structure(tensor: torch.Tensor) -> Structure:
    """The first that fits; a single element is one value everywhere."""
    tensor = _corner(tensor)
    any_structure = tensor if tensor.ndim > 4 or _may_be_permutation(tensor) else _corner(tensor, FEW)
    fitting = (found for found, fits in _FITS if fits(any_structure) and fits(tensor))
    return next(fitting, Structure.NONE)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1, tensor.shape[-1])


def _corner(tensor: torch.Tensor, most: int = SAMPLE) -> torch.Tensor:
    """The first elements in every dimension, not too many: a structure shows there, and the whole may have GiB."""
    while tensor.numel() > most:
        largest = max(range(tensor.ndim), key=tensor.shape.__getitem__)
        both = [d for d in range(max(0, tensor.ndim - 2), tensor.ndim) if tensor.shape[d] == tensor.shape[largest]]
        for dimension in both if largest in both else [largest]:
            tensor = tensor.narrow(dimension, 0, tensor.shape[dimension] // 2)
    return tensor


def _is_constant(tensor: torch.Tensor) -> bool:
    return bool((tensor == tensor.reshape(-1)[0]).all())


def _is_square(tensor: torch.Tensor) -> bool:
    return tensor.ndim >= 2 and tensor.shape[-1] == tensor.shape[-2] >= 3


def _is_identity(tensor: torch.Tensor) -> bool:
    if not _is_square(tensor):
        return False
    diagonal = tensor.diagonal(dim1=-2, dim2=-1)
    return bool((diagonal != 0).all()) and int((tensor != 0).sum()) == diagonal.numel()


def _is_triangle(tensor: torch.Tensor) -> bool:
    """Whether all beyond one side of the diagonal is one value, and no element of the other side is."""
    if not _is_square(tensor):
        return False
    n = tensor.shape[-1]
    return any(_is_lower_triangle(side, n) for side in (tensor, tensor.mT))


def _is_lower_triangle(tensor: torch.Tensor, n: int) -> bool:
    empty = tensor.reshape(-1, n, n)[0, 0, -1]
    if not bool((tensor[..., 0, 1:] == empty).all()):  # soon found of a matrix that is not one
        return False
    above = torch.ones(n, n, dtype=torch.bool, device=tensor.device).triu(1)
    return bool((tensor[..., above] == empty).all()) and not bool((tensor[..., above.mT] == empty).any())


def _is_symmetric(tensor: torch.Tensor) -> bool:
    return _is_square(tensor) and bool((tensor == tensor.mT).all())


def _is_sequence(tensor: torch.Tensor) -> bool:
    if not tensor.ndim or tensor.shape[-1] < 4 or tensor.dtype is torch.bool:
        return False
    rows = _rows(tensor).double()
    steps = rows.diff(dim=-1)
    step = float(steps[0, 0])
    room = 2.0**-6 * abs(step) if tensor.is_floating_point() else 0.0
    return step != 0 and math.isfinite(step) and bool(((steps - step).abs() <= room).all())


def _is_sorted(tensor: torch.Tensor) -> bool:
    if not tensor.ndim or tensor.shape[-1] < 8 or tensor.dtype is torch.bool:
        return False
    rows = _rows(tensor)
    return bool((rows[:, 1:] >= rows[:, :-1]).all())


def _has_two_values(tensor: torch.Tensor) -> bool:
    """Such as a mask of floats, 0 and 1 or 0 and -Inf."""
    if tensor.dtype is torch.bool or tensor.numel() < 16:
        return False
    first = tensor.reshape(-1)[0]
    others = tensor[tensor != first]
    return bool((others == others[:1]).all())


def _may_be_permutation(tensor: torch.Tensor) -> bool:
    integers = not (tensor.is_floating_point() or tensor.dtype is torch.bool)
    return integers and tensor.ndim == 1 and tensor.numel() >= 4


def _is_permutation(tensor: torch.Tensor) -> bool:
    return _may_be_permutation(tensor) and bool((tensor.sort().values.diff() == 1).all())


def is_distinct(tensor: torch.Tensor) -> bool:
    """Whether no two of a row of integers are equal, as the places of new rows in a cache are."""
    return _may_be_permutation(tensor) and bool((tensor.sort().values.diff() != 0).all())


_FITS: tuple[tuple[Structure, Callable[[torch.Tensor], bool]], ...] = (
    (Structure.CONSTANT, _is_constant),
    (Structure.IDENTITY, _is_identity),
    (Structure.TRIANGLE, _is_triangle),
    (Structure.SEQUENCE, _is_sequence),
    (Structure.SORTED, _is_sorted),
    (Structure.PERMUTATION, _is_permutation),
    (Structure.SYMMETRIC, _is_symmetric),
    (Structure.TWO_VALUES, _has_two_values),
)
