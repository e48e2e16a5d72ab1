"""How far a result moves when a reference in float64 rounds as float32 does: no float32 kernel can be held to less.

Errors are judged by the magnitude of the results. That says little where their terms cancel. A sum of 262144 normal
numbers is 512 in the mean and 0.4 once in a thousand draws, while its terms, and so its error, are as large as ever:
3e-5, which is 6e-8 of 512 and 7e-5 of 0.4. A layer norm of equal values is 0, and in float32 up to 316 times what
their mean is off by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from cutesmith.errors import UnavailableError
from cutesmith.judge.reference_side.precision import WidenCasts, in_float64, widen
from cutesmith.judge.reference_side.tolerance import BACKWARD, DEFAULTS, Tolerance
from cutesmith.judge.transfer.tensors import copy_of

FEW = 8  # elements; that more of them are all small by luck does not happen
HALF_UNIT = 2.0**-24  # the largest relative error of one rounding to float32
DRAWS = 4
INTEGER_DRAWS = 16  # the place of the largest of two equal numbers stays in one of so many draws in 65536
SMALLER = 8.0  # roundings so many times as small move a smooth result so many times less
# A square moves as the square; where rounding decides (floor(x)), all move equally.
SMOOTH = (SMALLER / 2, 2 * SMALLER**2)
# A sum may be off by the tolerance where it is the result, so it may where more is made of it; twice, as directions are
# random. One chain of 1024 equal numbers is off by up to 256 roundings.
ROUNDINGS = 2 * (DEFAULTS[torch.float32].rms or 0.0) / HALF_UNIT
FEW_ROUNDINGS = BACKWARD  # at an offset of 1000 more than these would excuse a variance in one pass
SHORT_SUM = 2.0**-13  # what tensor cores of sm_90 keep of a sum of 8-bit floats, relative to its largest term
EIGHT_BITS = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})
MORE_THAN_ITS_OWN = 64.0  # an element that hardly moved in `DRAWS` draws may move as its row does, up to this


def depends_on_luck(output: torch.Tensor, exact: torch.Tensor | None, tolerance: Tolerance) -> bool:
    """Whether the magnitude of an output says little of its terms; the tolerances of a user are the user's."""
    return exact is not None and is_rounded(output) and output.numel() <= FEW and tolerance.rms is not None


def is_rounded(output: torch.Tensor) -> bool:
    """Whether an output has a float type narrower than float64."""
    return output.is_floating_point() and output.dtype != torch.float64


def movements(
    function: Callable[..., Any], values: Sequence[Any], exact: Sequence[torch.Tensor | None], *, one_way: bool = False
) -> list[float]:
    """Of each float64 result of `values`, the root mean square of its change: the largest of `DRAWS` draws.

    0 where the result jumps rather than moves, and for a function that takes no such inputs. `one_way`: the numbers
    of one sign are off, all by one factor, as a shifted mean makes them.
    """
    least, most = [0.0] * len(exact), [0.0] * len(exact)
    for changes in _changes(function, values, exact, one_way=one_way):
        smaller, whole = (list(map(_root_mean_square, of_unit)) for of_unit in changes)
        least, most = list(map(max, least, smaller)), list(map(max, most, whole))
    return [far if far >= SMOOTH[0] * near else 0.0 for near, far in zip(least, most)]


def room_of(
    function: Callable[..., Any], values: Sequence[Any], exact: Sequence[torch.Tensor | None], roundings: float
) -> list[torch.Tensor]:
    """How far each element of a float64 result moves by so many roundings of what it is made from.

    Flat, 0 where an element jumps rather than moves. Such as 0.005 for a layer norm of a row of equal values, which is
    0 in float64 and in no float32 arithmetic.
    """
    near, far = ([_still(result) for result in exact] for _ in range(2))
    for smaller, whole in _changes(function, values, exact):
        near, far = list(map(torch.maximum, near, smaller)), list(map(torch.maximum, far, whole))
    return [_extrapolated(*pair, roundings) for pair in zip(near, far)]


def unsettled(
    function: Callable[..., Any], values: Sequence[Any], exact: Sequence[torch.Tensor | None]
) -> list[torch.Tensor]:
    """Which elements of a float64 result are NaN, Inf or -Inf by few roundings alone: flat.

    A scale of Inf times a sum that is nearly 0 has the sign of its rounding. Found on an H100 in 2 of 59 million.
    """
    short = any(isinstance(value, torch.Tensor) and value.dtype in EIGHT_BITS for value in values)
    roundings = Roundings(FEW_ROUNDINGS * (SHORT_SUM if short else HALF_UNIT))
    found = [_still(result).bool() for result in exact]
    for seed in torch.randint(1 << 31, (DRAWS,)).tolist():
        results = _rounded(function, values, roundings, seed) or ()
        if len(results) == len(exact):
            found = [before | _of_another_kind(now, wide) for before, now, wide in zip(found, results, exact)]
    return [each.reshape(-1) for each in found]


def reached(
    function: Callable[..., Any],
    values: Sequence[Any],
    exact: Sequence[torch.Tensor | None],
    outputs: Sequence[torch.Tensor],
) -> list[torch.Tensor | None]:
    """Which elements of integer outputs a rounding of each step gives; None for other outputs.

    Such as the place of the largest of several cosines of vectors with themselves, which are 1: any may be.
    """
    given: list[torch.Tensor | None] = [
        None if wide is None or own.is_floating_point() or own.is_complex() else torch.zeros_like(own, dtype=torch.bool)
        for own, wide in zip(outputs, exact)
    ]
    for seed in torch.randint(1 << 31, (INTEGER_DRAWS,)).tolist():
        results = _rounded(function, values, Roundings(HALF_UNIT, by_value=True), seed) or ()
        if len(results) == len(given):
            pairs = zip(given, outputs, results)
            given = [mask if mask is None else mask | (own == result) for mask, own, result in pairs]
    return given


def _of_another_kind(result: torch.Tensor, exact: torch.Tensor | None) -> torch.Tensor:
    """Where one is special, and the other is not or is otherwise."""
    if exact is None or not exact.is_floating_point():
        return _still(exact).bool()
    same = (result == exact) | (result.isnan() & exact.isnan()) | (result.isfinite() & exact.isfinite())
    return ~same


def _extrapolated(near: torch.Tensor, far: torch.Tensor, roundings: float) -> torch.Tensor:
    """What so many roundings move, by what one and `SMALLER` times less move; at least a part of what its row moves."""
    ratio = far / near
    smooth = (ratio >= SMOOTH[0]) & (ratio <= SMOOTH[1])
    power = torch.where(smooth, ratio.log2() / math.log2(SMALLER), 1.0)
    own = torch.where(smooth, far * roundings ** power.clamp(max=2.0), 0.0)
    row = own.square().mean(-1, keepdim=True).sqrt() if own.ndim >= 2 and own.numel() else own
    return torch.maximum(own, torch.minimum(row, MORE_THAN_ITS_OWN * own)).reshape(-1)


Changes = list[torch.Tensor]  # of each result, how far each element moved


def _changes(
    function: Callable[..., Any], values: Sequence[Any], exact: Sequence[torch.Tensor | None], *, one_way: bool = False
) -> Iterator[tuple[Changes, Changes]]:
    """For each of `DRAWS` draws how far roundings move the results: those `SMALLER` times as small, and whole ones.

    0 of what is not a finite float in both, and everywhere for a function that takes no such inputs.
    """
    for seed in torch.randint(1 << 31, (DRAWS,)).tolist():
        yield (
            _moved(function, values, exact, Roundings(HALF_UNIT / SMALLER, one_way), seed),
            _moved(function, values, exact, Roundings(HALF_UNIT, one_way), seed),
        )


def _moved(
    function: Callable[..., Any],
    values: Sequence[Any],
    exact: Sequence[torch.Tensor | None],
    roundings: Roundings,
    seed: int,
) -> Changes:
    results = _rounded(function, values, roundings, seed)
    if results is None or len(results) != len(exact):
        return [_still(result) for result in exact]
    return [_distance(*pair) for pair in zip(results, exact)]


def _rounded(
    function: Callable[..., Any], values: Sequence[Any], roundings: Roundings, seed: int
) -> list[torch.Tensor] | None:
    """The float64 results where all is rounded; None for a function that takes no such inputs."""
    torch.manual_seed(seed)  # the same directions by each unit
    rounded = [roundings.of(widen(copy_of(value))) for value in values]
    try:
        returned = in_float64(function, rounded, partial(Rounding, roundings))
        return list(returned) if isinstance(returned, (tuple, list)) else [returned]
    except UnavailableError:
        raise
    except Exception:  # noqa: BLE001 - it may refuse what is off by a rounding, such as shares that must sum to 1
        return None


@dataclass(frozen=True)
class Roundings:
    """Numbers off by up to two `unit`s, each by its own, or with `one_way` all of one sign and no others.

    Towards zero, so that a probability stays one: of more than 1, binary_cross_entropy ends the process on a GPU.
    `by_value`: equal numbers are off by the same, so that what decides between equals still does.
    """

    unit: float
    one_way: bool = False
    by_value: bool = False

    def of(self, value: Any) -> Any:
        """A float tensor with each element off; anything else as it is."""
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        if self.one_way:
            parts = (value < 0) == bool(torch.rand(()) < 0.5)
        elif self.by_value:
            parts = _hashed(value.double(), int(torch.randint(1 << 31, ())))
        else:
            parts = torch.rand(value.shape, dtype=torch.float64, device=value.device)
        return value * (1 - 2 * self.unit * parts)


def _hashed(value: torch.Tensor, seed: int) -> torch.Tensor:
    """Numbers from 0 to 1 that the bits of float64 ones and the seed decide (the steps of SplitMix64)."""
    bits = value.contiguous().view(torch.int64) ^ (seed * 0x5851F42D)
    for factor in (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15):
        bits = (bits ^ (bits >> 30)) * factor
    return ((bits ^ (bits >> 31)) & (1 << 53) - 1).double() * 2.0**-53


class Rounding(WidenCasts):
    """Within it, results of functions that are not float32 numbers are rounded."""

    def __init__(self, roundings: Roundings) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.roundings = roundings

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = super().__torch_function__(func, types, args, kwargs)
        taken = [value for value in (*args, *(kwargs or {}).values()) if isinstance(value, torch.Tensor)]
        if not isinstance(result, torch.Tensor) or not taken or _shares_memory(result, taken):
            return result
        with torch._C.DisableTorchFunction():
            if result.dtype != torch.float64 or bool((result.float() == result).all()):
                return result
            return torch.where(result.float() == result, result, self.roundings.of(result))


def _shares_memory(result: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    """Whether a result is a view, or was written in place: a copy would not be what the caller writes to."""
    with torch._C.DisableTorchFunction():
        storage = result.untyped_storage().data_ptr()
        return any(storage == other.untyped_storage().data_ptr() for other in others)


def _still(exact: torch.Tensor | None) -> torch.Tensor:
    """No movement, of every element of a result."""
    return torch.zeros(()) if exact is None else torch.zeros(exact.shape, dtype=torch.float64, device=exact.device)


def _distance(result: torch.Tensor, exact: torch.Tensor | None) -> torch.Tensor:
    if exact is None or not exact.is_floating_point() or not exact.numel():
        return _still(exact)
    distance = (result.double() - exact.double()).abs()
    return torch.where(distance.isfinite(), distance, 0.0)


def _root_mean_square(change: torch.Tensor) -> float:
    return float(change.square().mean().sqrt()) if change.numel() else 0.0
