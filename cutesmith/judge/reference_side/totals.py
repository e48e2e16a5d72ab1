"""Errors of one output, gathered chunk by chunk, and by which excuse those beyond the tolerance pass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from cutesmith.judge.reference_side.rounded_factors import TF32
from cutesmith.judge.reference_side.tolerance import (
    BACKWARD,
    DERIVED_SLACK,
    FEW_ROUNDED,
    HALVES_ROOM,
    NATIVE_SLACK,
    ROUNDED_ROOM,
    ROUNDED_SLACK,
    Tolerance,
    flushed_below,
)
from cutesmith.verdicts import Excuse

CHUNK = 1 << 24  # elements on a GPU: float64 temporaries of 128 MiB
CPU_CHUNK = 1 << 15  # 256 KiB stay in the cache, and wake no other thread: 49 ms of CPU time become 29 on one thread


def chunks(flat: torch.Tensor) -> list[torch.Tensor]:
    """Views of a flat tensor that are small enough for copies in float64."""
    size = CHUNK if flat.is_cuda else CPU_CHUNK
    return [flat[begin : begin + size] for begin in range(0, flat.numel(), size)]


@dataclass(frozen=True)
class Slack:
    """What PyTorch's own error excuses: `relative` to |ref| + scale, and `factor` times its root mean square."""

    relative: float = 0.0
    factor: float = NATIVE_SLACK
    note: str = ""
    excuse: Excuse = Excuse.PYTORCH


class Totals:
    """Errors gathered over chunks of one output."""

    def __init__(self, tolerance: Tolerance, dtype: torch.dtype, scale: float, slack: Slack = Slack()) -> None:
        self.tolerance, self.dtype, self.scale, self.slack = tolerance, dtype, scale, slack
        self.max_abs = self.max_rel = self.max_ulp = 0.0
        self.mismatches = self.special = self.extra_nan = self.elements = self.undecided = 0
        self.squares = self.native_squares = self.reference_squares = self.stated_squares = 0.0
        self.worst_position: int | None = None
        self.worst_pair = (0.0, 0.0)  # what that element is off by, and what is allowed of it
        self.wrong: list[torch.Tensor] = []  # which elements, chunk by chunk
        self.excused: dict[str, Any] = {}  # fields of OutputError
        self._worst_excess = self._furthest = 0.0

    def add_all(self, *flat: torch.Tensor) -> Totals:
        """Output, PyTorch's own and float64 reference, whole."""
        begin = 0
        for parts in zip(*map(chunks, flat)):
            self.add(begin, *parts)
            begin += parts[0].numel()
        return self

    def add(self, begin: int, actual: torch.Tensor, native: torch.Tensor, exact: torch.Tensor) -> None:
        """One chunk: special values first, then the finite ones.

        Where only one of the references is finite (an intermediate of PyTorch's overflowed, or the exact result is
        beyond the dtype) the output may be as either is: the same special value, or within tolerance of the finite one.
        Where an intermediate of PyTorch's overflowed any special value passes: Inf - Inf is NaN, and is Inf in a fused
        multiply-add that does not round the second product. Where the exact result is within tolerance of the largest
        number, Inf counts as that number.
        """
        out, own = actual.double(), native.double()
        rounded = exact.to(self.dtype).double()
        largest = torch.finfo(self.dtype).max
        moved = self._rounded_room(begin, out)
        edge = (exact.abs() / largest - 1).abs() <= (moved / largest).clamp(min=self.tolerance.rtol)
        out = torch.where(edge & out.isinf(), out.sign() * largest, out)
        target = torch.where(rounded.isfinite() | edge, exact, own)
        special = ~(out.isfinite() & target.isfinite())
        wrong = special & ~(same(out, own) | same(out, rounded))
        overflowed = exact.isfinite() & ~own.isfinite() & ~same(own, rounded)
        wrong &= ~(overflowed & ~out.isfinite())
        if not self.tolerance.nan_decides:
            open_places = own.isnan() & rounded.isnan()
            self.undecided += int(open_places.sum())
            wrong &= ~open_places
            wrong &= ~(~out.isfinite() & ~own.isfinite() & rounded.isnan())
        self.special += int(wrong.sum())
        self.extra_nan += int((wrong & out.isnan()).sum())
        difference = torch.where(special, 0.0, (out - target).abs())
        reference = torch.where(special, 0.0, target.abs())
        unit = unit_in_last_place(reference, self.dtype)
        stated = self.tolerance.atol * self.scale + self.tolerance.rtol * reference
        allowed = torch.maximum(stated, unit)
        flushed = flushed_below(self.dtype)
        allowed = allowed.clamp(min=flushed)
        # where PyTorch itself is further off than the tolerance, so may the kernel be, up to the bounded slack
        allowed = torch.maximum(allowed, self.slack.relative * (reference + self.scale))
        allowed = allowed.clamp(min=BACKWARD * self.tolerance.moved)
        room = self._room(begin, difference)
        allowed = torch.maximum(allowed, room)
        allowed = torch.maximum(allowed, moved)
        self._note_excuse(difference, stated + self.tolerance.units * unit, allowed, reference, unit, room, moved)
        self.undecided += int((~special).sum()) if self.slack.relative == math.inf else 0
        self.max_abs = max(self.max_abs, float(difference.max()))
        self.max_rel = max(self.max_rel, float(torch.where(reference > 0, difference / reference, 0.0).max()))
        self.max_ulp = max(self.max_ulp, float((difference / unit).max()))
        out_of_tolerance = (difference > allowed) | wrong
        self.mismatches += int(out_of_tolerance.sum())
        self.wrong.append(out_of_tolerance)
        excess = torch.where(wrong, math.inf, difference / allowed)
        if float(excess.max()) > self._worst_excess:
            self._worst_excess = float(excess.max())
            at = int(excess.argmax())
            self.worst_position, self.worst_pair = begin + at, (float(difference[at]), float(allowed[at]))
        own_error = torch.where(special | ~own.isfinite(), 0.0, own - target)
        self.elements += difference.numel()
        self.squares += float((difference - room.clamp(min=flushed)).clamp(min=0.0).square().sum())
        self.native_squares += float(own_error.square().sum())
        self.reference_squares += float(reference.square().sum())
        self.stated_squares += float(stated.square().sum())

    def _note_excuse(self, difference: torch.Tensor, stated: torch.Tensor, *sides: torch.Tensor) -> None:
        """What is allowed of the element that is furthest beyond the stated tolerance, and by which excuse."""
        beyond, at = (difference - stated).max(dim=0)
        allowed, reference, unit, room, moved = (float(side[at]) for side in sides)
        if not float(beyond) > self._furthest or not allowed > float(stated[at]):
            return
        by = {
            Excuse.LAST_PLACE: unit,
            Excuse.PYTORCH: 0.0,
            self.slack.excuse: self.slack.relative * (reference + self.scale) if self.slack.relative else 0.0,
            Excuse.INPUTS: BACKWARD * self.tolerance.moved,
            Excuse.STEPS: room,
            Excuse.FACTORS: moved,
        }
        excuse = max(by, key=by.__getitem__)
        self._furthest = float(beyond)
        self.excused = {
            "excuse": excuse if by[excuse] >= allowed else Excuse.SUBNORMAL,
            "excused_error": float(difference[at]),
            "excused_allowed": allowed if math.isfinite(allowed) else str(allowed),
        }

    def _room(self, begin: int, difference: torch.Tensor) -> torch.Tensor:
        room = self.tolerance.room
        return torch.zeros_like(difference) if room is None else room[begin : begin + difference.numel()]

    def _rounded_room(self, begin: int, out: torch.Tensor) -> torch.Tensor:
        """What rounded factors excuse of each element of a chunk."""
        rounded = self.tolerance.rounded
        if rounded is None:
            return torch.zeros_like(out)
        times = ROUNDED_ROOM if TF32 in rounded.types else HALVES_ROOM
        return times * rounded.farthest[begin:][: out.numel()]

    def rms_error(self) -> float:
        """Root mean square of the error over that of the reference."""
        return self._relative(self.squares)

    def rms_native(self) -> float:
        """The same for PyTorch's own result."""
        return self._relative(self.native_squares)

    def moved(self) -> float:
        """The same for what roundings of the inputs do."""
        return self._relative(self.elements * self.tolerance.moved**2)

    def rounded(self) -> float:
        """The same for what rounded factors do."""
        return self._relative(self.elements * self.tolerance.rounded.rms**2) if self.tolerance.rounded else 0.0

    def _relative(self, squares: float) -> float:
        return math.sqrt(squares / self.reference_squares) if self.reference_squares else 0.0

    def sloppy(self) -> bool:
        """Whether the error is larger all over than roundings of the output explain.

        Of stated tolerances, which bound each element, only where rounded factors excuse more: all may not be off by
        as much as one may.
        """
        least = self.tolerance.rms
        if least is None:
            if self.tolerance.rounded is None:
                return False
            least = self._relative(self.stated_squares)
        nearby = 2 * DERIVED_SLACK * self.tolerance.native_error  # that of errors up to native_error * (|ref| + scale)
        rounded = (ROUNDED_SLACK + FEW_ROUNDED / math.sqrt(max(1, self.elements))) * self.rounded()
        excused = max(self.slack.factor * self.rms_native(), nearby, BACKWARD * self.moved(), rounded)
        return self.rms_error() > max(least, excused)


def same(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Where two tensors are equal; NaN equals NaN."""
    return (first == second) | (first.isnan() & second.isnan())


def unit_in_last_place(magnitude: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The spacing of `dtype` at each (float64, non-negative) magnitude; that of the subnormals near zero."""
    information = torch.finfo(dtype)
    exponent = torch.frexp(magnitude).exponent.double() - 1  # magnitude = m * 2**exponent, 1 <= m < 2
    smallest = math.log2(information.smallest_normal)
    exponent = torch.where(magnitude > 0, exponent.clamp(min=smallest), smallest)
    return torch.exp2(exponent) * information.eps
