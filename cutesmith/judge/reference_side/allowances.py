"""Outputs compared, and where they are out of tolerance, compared again with what the inputs themselves excuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch

from cutesmith.judge.reference_side.comparison import Comparison, compare, is_lost, native_excess
from cutesmith.judge.reference_side.convolution_taps import ByTaps
from cutesmith.judge.reference_side.rounded_factors import rounded_factors, unmeasured_factors
from cutesmith.judge.reference_side.sensitivity import (
    FEW,
    FEW_ROUNDINGS,
    ROUNDINGS,
    depends_on_luck,
    is_rounded,
    movements,
    reached,
    room_of,
    unsettled,
)
from cutesmith.judge.reference_side.squares import beyond_squares
from cutesmith.judge.reference_side.tolerance import Tolerance
from cutesmith.judge.reference_side.zero_products import OpenElements, open_elements
from cutesmith.judge.transfer.device_memory import bytes_here
from cutesmith.judge.transfer.tensors import copy_of, finite, span_of

NEARBY_DRAWS, MOST_NEARBY_DRAWS = 8, 32
OF_MANY = 2  # draws of more than `MOST_MOVED` elements: each has as many errors as many of few
NEARBY_RESULTS = (
    1 << 23
)  # elements of the results of all draws: a large result shows in one draw what small ones do in many
MOST_MOVED = 1 << 22
"""Elements of a tensor that is rounded many times: float64 copies of more fill the memory of a confined problem."""
MOST_WIDENED = 1 << 25  # of one of which float64 copies are kept: 256 MiB each
COPIES = 24  # that are kept at once, of a function of a few steps; a GPU may have room for larger ones
Outputs = list[torch.Tensor]
Exact = list["torch.Tensor | None"]
T = TypeVar("T")
Compute = Callable[[list[Any]], tuple[Outputs, Exact]]  # PyTorch's and the float64 results of inputs


def compared(
    reference_fn: Callable[..., Any],
    compute: Compute,
    values: list[Any],
    sides: tuple[Outputs, Outputs, Exact],
    stated: list[Tolerance],
    *,
    strict: bool,
    rounding: bool = True,
) -> list[Comparison]:
    """The candidate's outputs against PyTorch's and the float64 ones for `values`.

    Elements that PyTorch loses to a square out of range are not compared. `rounding`: factors may round, as
    `rounded_factors` says.
    """
    lost = beyond_squares(reference_fn, values, sides[2])
    if all(places is None for places in lost):
        return _excused(reference_fn, compute, values, sides, stated, strict=strict, rounding=rounding)
    actual, native, exact = ([_without(*each) for each in zip(side, lost)] for side in sides)
    results = _excused(reference_fn, compute, values, (actual, native, exact), stated, strict=strict, rounding=rounding)
    return [result if places is None else _without_lost(result, places) for result, places in zip(results, lost)]


def _without_lost(result: Comparison, places: torch.Tensor) -> Comparison:
    """The comparison of an output in which these places were not compared."""
    told = _noting(result, f"{int(places.sum())} elements, whose squares leave float32,")
    return replace(told, decided=told.decided and not (places.numel() and bool(places.all())))


def _without(side: torch.Tensor | None, places: torch.Tensor | None) -> Any:
    return side if side is None or places is None else torch.where(places, 0.0, side)


def _noting(result: Comparison, which: str, why: str = "PyTorch loses them too") -> Comparison:
    told = f"output {result.error.output}: {which} are not decided: {why}"
    return replace(result, note="; ".join(filter(None, (result.note, told))))


def _excused(
    reference_fn: Callable[..., Any],
    compute: Compute,
    values: list[Any],
    sides: tuple[Outputs, Outputs, Exact],
    stated: list[Tolerance],
    *,
    strict: bool,
    rounding: bool,
) -> list[Comparison]:
    """By the stated tolerances at first.

    Then with what rounded factors cost, with PyTorch's own errors nearby, with how far roundings move so few
    elements, with both results of products of zeros, with how far roundings move each element, few of them where it is
    `strict`, and with the integers that they give.
    """
    results = _compare_all(sides, stated)
    if not any(result.violation for result in results):
        return results
    _, native, exact = sides
    allowing = _allowing_rounded_factors(reference_fn, values, native, exact, stated) if rounding else stated
    if allowing is not stated:
        stated, results = allowing, _compare_all(sides, allowing)
        if not any(result.violation for result in results):
            return results
    excusing = _excusing_few(reference_fn, values, native, exact, _excusing_pytorch(compute, values, native, stated))
    if both := open_elements(reference_fn, values):
        sides, excusing = _excusing_zeros(sides, excusing, both)
        if rounding:
            with ByTaps(multiplies=False):  # also of the values without products of zeros
                excusing = _allowing_rounded_factors(reference_fn, values, native, sides[2], excusing)
    results = results if excusing == stated and not both else _compare_all(sides, excusing)
    if not _fits_widened([*values, *exact]) or not any(result.violation for result in results):
        return results
    moved = room_of(reference_fn, values, exact, FEW_ROUNDINGS if strict else ROUNDINGS)
    rooms = [
        room if wide is not None and is_rounded(own) and stated.rms is not None else None
        for room, wide, own, stated in zip(moved, exact, native, excusing)
    ]
    excusing = [replace(t, room=room) for t, room in zip(excusing, rooms)]
    if any(result.violation and not own.is_floating_point() for own, result in zip(native, results)):
        given = reached(reference_fn, values, exact, sides[0])
        excusing = [replace(t, reached=places) for t, places in zip(excusing, given)]
    results = _compare_all(sides, excusing)
    if all(result.violation is None for result in results) or not any(map(_special, sides[0])):
        return results
    open_kinds = unsettled(reference_fn, values, exact)
    if not any(bool(places.any()) for places in open_kinds):
        return results
    results = _compare_all(([_settled(*each) for each in zip(*sides[:2], open_kinds)], *sides[1:]), excusing)
    told = [f"{int(places.sum())} elements, which few roundings make Inf, -Inf or NaN," for places in open_kinds]
    return [_noting(result, which, "any of these passes") for result, which in zip(results, told)]


def _special(output: torch.Tensor) -> bool:
    return output.is_floating_point() and not bool(finite(output).all())


def _settled(actual: torch.Tensor, native: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """The output as PyTorch has it where it is special at these places of the flat one."""
    if not actual.is_floating_point():
        return actual
    return torch.where(places.view(actual.shape) & ~finite(actual), native, actual)


def _fits_widened(values: Sequence[Any]) -> bool:
    """Whether there is memory for float64 copies of all that a function computes from such tensors."""
    largest = max((value for value in values if isinstance(value, torch.Tensor)), key=torch.Tensor.numel, default=None)
    if largest is None or largest.numel() <= MOST_WIDENED:
        return True
    return largest.is_cuda and COPIES * torch.float64.itemsize * largest.numel() <= bytes_here()


def _compare_all(sides: tuple[Outputs, Outputs, Exact], tolerances: Sequence[Tolerance]) -> list[Comparison]:
    with torch._C.DisableTorchFunction():  # that tensors pose as CUDA's would cost more than the numbers do
        return [compare(index, *these) for index, these in enumerate(zip(*sides, tolerances))]


def _allowing_rounded_factors(
    reference_fn: Callable[..., Any], values: list[Any], native: Outputs, exact: Exact, tolerances: list[Tolerance]
) -> list[Tolerance]:
    """With what rounded factors of convolutions and products cost, where they may be (`rounded_factors`).

    Else the same list. Tolerances that somebody stated are meant beside what PyTorch computes on a GPU, as
    KernelBench's are.
    """
    measure = rounded_factors if _fits_widened([*values, *exact]) else unmeasured_factors
    rounded = measure(reference_fn, values, exact)
    if not any(rounded):
        return tolerances
    sides = zip(tolerances, native, rounded)
    return [replace(t, rounded=r if is_rounded(own) or r and r.integers else None) for t, own, r in sides]


def _excusing_pytorch(
    compute: Compute, values: list[Any], native: Outputs, tolerances: list[Tolerance]
) -> list[Tolerance]:
    """With what PyTorch is off by on inputs nearby: of derived inputs, which no one chose, and of integers."""
    forgiving = [t.derived or not own.is_floating_point() for t, own in zip(tolerances, native)]
    if not any(forgiving):
        return tolerances
    errors = _errors_nearby(compute, values, tolerances, max(own.numel() for own in native))
    return [replace(t, native_error=e) if f else t for t, e, f in zip(tolerances, errors, forgiving)]


def _excusing_zeros(
    sides: tuple[Outputs, Outputs, Exact], tolerances: list[Tolerance], both: list[OpenElements | None]
) -> tuple[tuple[Outputs, Outputs, Exact], list[Tolerance]]:
    """With NaN, and with the value without products of zeros, where only such a product makes a result special."""
    actual, native, exact = sides
    pairs = list(zip(native, exact, both))
    plain = [
        own if some is None else torch.where(some.places, some.without.to(own.dtype), own) for own, _, some in pairs
    ]
    wide = [e if some is None or e is None else torch.where(some.places, some.without, e) for _, e, some in pairs]
    wider = [t if some is None else replace(t, may_be_nan=some.places) for t, some in zip(tolerances, both)]
    return (actual, plain, wide), wider


def _excusing_few(
    reference_fn: Callable[..., Any], values: list[Any], native: Outputs, exact: Exact, tolerances: list[Tolerance]
) -> list[Tolerance]:
    """With how far roundings of the inputs move outputs of so few elements that all may be small by luck.

    Where PyTorch has no right digit they all go one way, whatever tolerance was stated: the mean of a norm is 0, and
    other roundings cancel in it.
    """
    sides = list(zip(native, exact, tolerances))
    lost = [own.numel() <= FEW and is_lost(own, wide, t) for own, wide, t in sides]
    few = [gone or depends_on_luck(*each) for gone, each in zip(lost, sides)]
    if not any(few):
        return tolerances
    moved = movements(reference_fn, values, exact, one_way=any(lost))
    return [replace(t, moved=m) if f else t for t, m, f in zip(tolerances, moved, few)]


def _errors_nearby(compute: Compute, values: list[Any], tolerances: Sequence[Tolerance], results: int) -> list[float]:
    """How far off PyTorch is, beyond tolerance, on inputs close by: on the very ones it may be right by luck.

    It looks on while PyTorch is right there too: one mean of all is rounded badly once in three draws, and of few
    integers one is rounded otherwise once in many. Every second draw has one factor a tensor, which keeps an offset.
    `results`: elements of the largest output.
    """
    errors = [0.0] * len(tolerances)
    largest = max((value.numel() for value in values if isinstance(value, torch.Tensor)), default=0)
    most = max(OF_MANY, min(MOST_NEARBY_DRAWS, NEARBY_RESULTS // max(1, results)))
    for draw in range(OF_MANY if largest > MOST_MOVED else most):
        if draw >= NEARBY_DRAWS and any(errors):
            break
        native, exact = compute([_nudged(value, by_one=draw % 2 == 1) for value in values])
        errors = [max(error, native_excess(*side)) for error, side in zip(errors, zip(native, exact, tolerances))]
    return errors


def _nudged(value: Any, *, by_one: bool) -> Any:
    """A float tensor shrunk by up to a sixteenth, each element or all `by_one` factor, so that all is rounded again.

    Anything else is the same.
    """
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    nudged = copy_of(value)
    memory = nudged.as_strided((span_of(value.shape, value.stride()),), (1,))  # once, where a dimension is expanded
    wide = memory.float() if memory.itemsize == 1 else memory  # 8-bit floats know no arithmetic
    memory.copy_(wide * (1 - torch.rand(() if by_one else memory.shape, device=value.device) / 16))
    return nudged
