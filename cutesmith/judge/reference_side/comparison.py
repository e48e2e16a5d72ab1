"""How far an output is from a float64 reference, and whether that is right.

An element is right when |out - ref| <= max(atol * scale + rtol * |ref|, one unit in the last place): no kernel can
do better than round the exact result. `scale` is the reference's magnitude (root mean square, without a few outliers;
at most 1 when `atol` was given), so that zeros never pass for small numbers (rule O3). Where PyTorch's own result in
the same dtype is further off, its largest error relative to |ref| + scale, doubled and bounded, is allowed too: an
ill-conditioned input is not the kernel's fault. Inputs that no one chose (derived ones) may be pure cancellation: there
an error of PyTorch beyond the tolerance is allowed four times over without a bound, and where PyTorch's own result has
no correct digit any number is as right as its; the comparison says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from cutesmith.judge.reference_side import wrong_places
from cutesmith.judge.reference_side.rounded_convolutions import RoundedFactors
from cutesmith.verdicts import Excuse, Mechanism, OutputError, Rule, Violation

FLUSHED = 2.0**-126  # float32 arithmetic on a GPU may flush subnormal numbers to zero
CHUNK = 1 << 24  # elements on a GPU: float64 temporaries of 128 MiB
CPU_CHUNK = 1 << 15  # 256 KiB stay in the cache, and wake no other thread: 49 ms of CPU time become 29 on one thread


@dataclass(frozen=True)
class Tolerance:
    """Relative and absolute tolerance; `scaled` says that `atol` is meant relative to the reference's magnitude.

    `rms` bounds the root mean square of the error over that of the reference: it tells sloppy accumulation, which is
    wrong everywhere a little, from single roundings. None where the user set the tolerances. `derived` says that no one
    chose the inputs, so that they may be too ill-conditioned for any result in this dtype; `native_error` is then what
    PyTorch was seen to be off by on inputs next to them (see `native_excess`), of integers in how many. `moved` is how
    far roundings of the inputs alone move the result (`sensitivity.py`): `BACKWARD` times that passes. Without
    `nan_decides` any value passes where the exact result and PyTorch's are NaN, and any special one where PyTorch's is
    Inf. `room` is what each element of the flat result may be off by in any case (`sensitivity.room_of`). `may_be_nan`
    says of each element of the result whether NaN passes too (`zero_products.open_elements`), `reached` of an integer
    one whether roundings give it (`sensitivity.reached`). `rounded` is what tf32 in convolutions does to the result.
    `units` in the last place of each element are allowed beside all this, for a type so coarse that its own rounding is
    more than what the arithmetic costs.
    """

    rtol: float
    atol: float
    rms: float | None = None
    scaled: bool = True
    units: float = 0.0
    derived: bool = False
    native_error: float = 0.0
    moved: float = 0.0
    nan_decides: bool = True
    room: torch.Tensor | None = field(default=None, compare=False)
    may_be_nan: torch.Tensor | None = field(default=None, compare=False)
    reached: torch.Tensor | None = field(default=None, compare=False)
    rounded: RoundedFactors | None = field(default=None, compare=False)


# About two units in the last place of the output type: one rounding of a float32 result passes, a chain of roundings
# or an accumulation in the output type does not. float32 leaves room for the hardware's approximate exp2, rsqrt, tanh.
DEFAULTS = {
    torch.float64: Tolerance(1e-9, 1e-10, 1e-9),
    torch.float32: Tolerance(1e-4, 2e-5, 2e-5),
    torch.float16: Tolerance(2**-9, 2**-12, 2**-10),
    torch.bfloat16: Tolerance(2**-6.5, 2**-9, 2**-7),
}
# Rounding both factors to 11 bits moves a sum of products by 2**-11.7 of its size in the root mean square, five times
# that at its worst of a million elements. What is added to it, or cut off, may leave a fourth of the size; bfloat16
# factors, eight times as coarse, do not pass.
TF32 = Tolerance(2**-8, 2**-7, 2**-9)
# The float8 types: what a bfloat16 result may be off by, and one unit in the last place of the value, which goes down
# to 2**-9 beside 32 next to the largest number. A share of that of the largest would hide all small numbers.
FLOAT8 = replace(DEFAULTS[torch.bfloat16], rms=2**-3, units=1.0)
NATIVE_SLACK = 2.0
NATIVE_BOUND = 8.0  # times rtol: PyTorch being far off excuses no more than this
ROUNDINGS = 4.0  # units in the last place: what a few roundings make of a result that hardly varies
BACKWARD = 4.0  # the error of float32 sums in any sensible order, in what one rounding of each term does
ROUNDED_ROOM = 8.0  # times the farthest that tf32 in convolutions moved an element, or its neighbours, in four draws
ROUNDED_SLACK = 1.25  # times the root mean square; a second rounding as large, of a product that may not, makes 1.41
FEW_ROUNDED = 4.0  # of n elements another draw may have 1 + 4 / sqrt(n) times the root mean square
DERIVED_SLACK = 4.0  # on a derived case that PyTorch itself gets wrong: another order of the same sums may double it
NO_DIGIT = 0.5  # an error in the root mean square of this share of the reference leaves not one binary digit right


def tolerance_for(dtype: torch.dtype, rtol: float | None, atol: float | None, *, tf32: bool = False) -> Tolerance:
    """The tolerance of a dtype with the user's numbers, where given, in place of the defaults.

    `tf32`: float32 results come of factors that were rounded to tf32.
    """
    default = TF32 if tf32 and dtype == torch.float32 else DEFAULTS.get(dtype, FLOAT8)
    if rtol is None and atol is None:
        return default
    return Tolerance(
        default.rtol if rtol is None else rtol, default.atol if atol is None else atol, None, scaled=atol is None
    )


@dataclass(frozen=True)
class Comparison:
    """One output judged: the numbers, and what is wrong with it; `note` says what was allowed beyond the tolerance.

    `rounded`: it was compared with what tf32 in convolutions costs. `decided`: not every value passes everywhere.
    """

    error: OutputError
    violation: Violation | None = None
    note: str = ""
    rounded: bool = False
    decided: bool = True


def compare(
    index: int, actual: torch.Tensor, native: torch.Tensor, exact: torch.Tensor | None, tolerance: Tolerance
) -> Comparison:
    """Judge one output of shape and dtype equal to `native` (PyTorch's result); `exact` is the float64 one, if any."""
    if not (actual.is_floating_point() or actual.is_complex()):
        return _compare_exactly(index, actual, native, exact, tolerance)
    if actual.is_complex():
        parts = [torch.view_as_real(t.contiguous()) for t in (actual, native)]
        double = None if exact is None else torch.view_as_real(exact.contiguous())
        return compare(index, parts[0], parts[1], double, tolerance)
    if tolerance.may_be_nan is not None:
        actual = torch.where(tolerance.may_be_nan & actual.isnan(), native, actual)
    comparison = _compare_floats(index, actual, native, native if exact is None else exact, tolerance)
    return _constant_or_not(comparison, actual, (native,) if exact is None else (native, exact))


def _constant_or_not(comparison: Comparison, actual: torch.Tensor, references: Sequence[torch.Tensor]) -> Comparison:
    """Rule O3: one value everywhere against a reference that varies is not a result, however small the numbers are.

    PyTorch's and the float64 result have to vary, a layer norm of single elements is 0, but for noise in bfloat16; and
    by more than roundings: sums of a million that differ by less than a unit in the last place are one number, and so
    is the mean of what a norm gives, 0 in float64 and 1e-8 in float32.
    """
    known = comparison.violation
    rounded = not known and comparison.error.max_ulp <= ROUNDINGS
    if actual.numel() < 2 or rounded or not _constant(actual) or any(map(_constant, references)):
        return comparison
    if not known and len(references) == 2 and _varies_by_rounding(*references):
        return comparison
    value = actual.reshape(-1)[0].item()
    if known:
        return comparison if math.isnan(value) else replace(comparison, violation=replace(known, rule=Rule.O3))
    text = f"output {comparison.error.output} is {value:g} everywhere where the reference varies"
    return replace(comparison, violation=Violation(Rule.O3, Mechanism.FLOAT64_REFERENCE, text))


def _varies_by_rounding(native: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether all float64 results are as close to each other as PyTorch's are to them."""
    exact = exact.double()
    return bool(exact.max() - exact.min() <= (native.double() - exact).abs().max())


def _constant(tensor: torch.Tensor) -> bool:
    flat = tensor.reshape(-1)
    return bool(((flat == flat[0]) | (flat.isnan() & flat[0].isnan())).all())


def _compare_exactly(
    index: int, actual: torch.Tensor, native: torch.Tensor, exact: torch.Tensor | None, tolerance: Tolerance
) -> Comparison:
    """Integers and booleans must be equal to PyTorch's or to the float64 result's.

    Where those two differ, rounding is at stake, and as many elements again may be off by one step, or what roundings
    give; where they agree by luck, as many as they differ in on inputs next to these (`tolerance.native_error`).
    """
    wrong = actual != native
    disputed, reached = max(_disputed(native, exact), int(tolerance.native_error)), tolerance.reached
    if exact is not None and exact.dtype == native.dtype:
        wrong &= actual != exact
    for other in () if tolerance.rounded is None else tolerance.rounded.integers:
        disputed = max(disputed, _disputed(other, exact))
        reached = (actual == other) if reached is None else reached | (actual == other)
    mismatches = int(wrong.sum())
    if mismatches and disputed and mismatches <= 4 * disputed:
        difference = (actual.to(torch.int64) - native.to(torch.int64)).abs()
        far = wrong & (difference > 1)
        mismatches = int((far if reached is None else far & ~reached).sum())
    difference = (actual.double() - native.double()).abs() * wrong
    largest = float(difference.max()) if actual.numel() else 0.0
    position = int(difference.reshape(-1).argmax()) if actual.numel() else None
    error = _output_error(
        index, actual, native, position, max_abs=largest, max_rel=0.0, max_ulp=largest, mismatches=mismatches
    )
    if mismatches == 0:
        if largest:
            error = replace(error, excuse=Excuse.INTEGERS, excused_error=largest, excused_allowed=largest)
        return Comparison(error, rounded=tolerance.rounded is not None)
    text = f"output {index}: {mismatches} of {actual.numel()} elements differ; {_worst(error)}"
    return Comparison(error, _wrong(text))


def _disputed(native: torch.Tensor, exact: torch.Tensor | None) -> int:
    """In how many elements PyTorch's integers are not those of the float64 result."""
    return 0 if exact is None or exact.dtype != native.dtype else int((exact != native).sum())


def _output_error(
    index: int, actual: torch.Tensor, expected: torch.Tensor, position: int | None, **numbers: Any
) -> OutputError:
    """The numbers of an output, and the element at a flat position, which is the worst."""
    if position is not None:
        place = _unravelled(position, actual.shape)
        pair = [float(side[place].item()) for side in (actual, expected)]
        told = [value if math.isfinite(value) else str(value) for value in pair]
        numbers |= {"worst_index": place, "worst_actual": told[0], "worst_expected": told[1]}
    dtype = str(actual.dtype).removeprefix("torch.")
    return OutputError(output=index, dtype=dtype, shape=tuple(actual.shape), elements=actual.numel(), **numbers)


def _compare_floats(
    index: int, actual: torch.Tensor, native: torch.Tensor, exact: torch.Tensor, tolerance: Tolerance
) -> Comparison:
    flat = [actual.reshape(-1), native.reshape(-1), _reachable(exact, actual.dtype)]
    scale = reference_scale(flat[2], capped=not tolerance.scaled)
    slack = _native_slack(flat[1], flat[2], scale, tolerance)
    totals = _Totals(tolerance, actual.dtype, scale, slack).add_all(*flat)
    error = _output_error(
        index,
        actual,
        exact,
        totals.worst_position,
        max_abs=totals.max_abs,
        max_rel=totals.max_rel,
        max_ulp=totals.max_ulp,
        mismatches=totals.mismatches,
        rtol=tolerance.rtol,
        atol=tolerance.atol * scale,
        units=tolerance.units,
        rms=totals.rms_error() if totals.reference_squares else None,
        rms_native=totals.rms_native() if totals.reference_squares else None,
        **totals.excused,
    )
    notes = [slack.note] if slack.note else []
    if flat[2].numel() and not bool(flat[2].to(actual.dtype).double().isfinite().any()):
        notes.append("the reference is Inf or NaN everywhere")
    if tolerance.may_be_nan is not None:
        count = int(tolerance.may_be_nan.sum())
        notes.append(f"{count} elements may be NaN, where padding or a masked key meets what is not finite")
    if tolerance.moved:
        moved = f"roundings of the inputs to float32 move it by {totals.moved():.2g} of the reference"
        notes.append(f"ill-conditioned: {moved}")
    if tolerance.rounded:
        notes.append(f"tf32 in its convolutions moves it by {totals.rounded():.2g} of the reference")
    note = f"output {index}: {'; '.join(notes)}" if notes else ""
    decided = not error.elements or totals.undecided < error.elements
    return Comparison(error, _judge(error, totals), note, rounded=tolerance.rounded is not None, decided=decided)


def _judge(error: OutputError, totals: _Totals) -> Violation | None:
    where = f"output {error.output}"
    if totals.special:
        rule = Rule.O6 if totals.extra_nan else None
        what = "NaN where the reference has none" if totals.extra_nan else "NaN or Inf not where the reference has them"
        text = f"{totals.special} of {error.elements} elements are {what}{_places(error, totals)}"
        return _wrong(f"{where}: {text}; {_worst(error)}", rule)
    if error.mismatches:
        text = f"{error.mismatches} of {error.elements} elements are out of tolerance{_places(error, totals)}"
        return _wrong(f"{where}: {text}; {_worst(error)}")
    if totals.sloppy():
        share = f"{totals.rms_error():.2g} of the reference's, PyTorch's own {totals.rms_native():.2g}"
        advice = "accumulate in a wider type"
        if totals.tolerance.rounded:
            advice = f"tf32 in its convolutions explains {totals.rounded():.2g}: round to nearest, and once"
        return _wrong(f"{where}: the root mean square error is {share}: {advice}", Rule.O9)
    return None


def _places(error: OutputError, totals: _Totals) -> str:
    found = wrong_places.where(torch.cat(totals.wrong), error.shape) if error.shape else ""
    return f" ({found})" if found else ""


def _wrong(text: str, rule: Rule | None = None) -> Violation:
    return Violation(rule, Mechanism.FLOAT64_REFERENCE, text, reject=False)


def _worst(error: OutputError) -> str:
    place = list(error.worst_index)
    return f"worst at {place}: {error.worst_actual} instead of {error.worst_expected}"


def reference_scale(exact: torch.Tensor, *, capped: bool) -> float:
    """The magnitude of a flat reference: its root mean square, but no more than 32 medians of what is not zero."""
    squares, count = 0.0, 0
    for part in _chunks(exact):
        finite = part[part.isfinite()]
        squares, count = squares + float(finite.square().sum()), count + finite.numel()
    rms = math.sqrt(squares / count) if count else 0.0
    sample = exact[:: max(1, exact.numel() >> 20)].abs()
    sample = sample[sample.isfinite() & (sample > 0)]
    scale = min(rms, 32 * float(sample.median())) if sample.numel() else rms
    return min(1.0, scale) if capped else scale


def _reachable(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A reference in float64, flat; where the type's conversion saturates (float8), no more than its largest number."""
    flat = exact.double().reshape(-1)
    largest = torch.finfo(dtype).max
    if not math.isfinite(torch.tensor(2 * largest, dtype=torch.float64).to(dtype).item()):
        return flat
    return torch.where(flat.isfinite(), flat.clamp(-largest, largest), flat)


def _chunks(flat: torch.Tensor) -> list[torch.Tensor]:
    size = CHUNK if flat.is_cuda else CPU_CHUNK
    return [flat[begin : begin + size] for begin in range(0, flat.numel(), size)]


@dataclass(frozen=True)
class _Slack:
    """What PyTorch's own error excuses: `relative` to |ref| + scale, and `factor` times its root mean square."""

    relative: float = 0.0
    factor: float = NATIVE_SLACK
    note: str = ""
    excuse: Excuse = Excuse.PYTORCH


def _native_slack(native: torch.Tensor, exact: torch.Tensor, scale: float, tolerance: Tolerance) -> _Slack:
    """PyTorch's largest error, doubled and bounded by the tolerance; see the module for derived inputs."""
    error = _native_error(native, exact, scale, tolerance.units)
    bounded = min(NATIVE_SLACK * error, NATIVE_BOUND * tolerance.rtol)
    if not tolerance.derived:
        return _Slack(bounded)
    own = _own_totals(native, exact, scale, tolerance)
    if own.rms_error() >= NO_DIGIT:
        note = "ill-conditioned: no digit of PyTorch's own result is right, any number passes"
        return _Slack(math.inf, math.inf, note, Excuse.NO_DIGIT)
    excess = max(tolerance.native_error, error if own.mismatches else 0.0)
    if excess == 0:
        return _Slack(bounded)
    note = f"ill-conditioned: PyTorch's own error is {excess:.2g} of the reference, {DERIVED_SLACK:g} times that passes"
    excuse = Excuse.NEARBY if tolerance.native_error == excess else Excuse.PYTORCH
    return _Slack(max(bounded, DERIVED_SLACK * excess), DERIVED_SLACK, note, excuse)


def is_lost(native: torch.Tensor, exact: torch.Tensor | None, tolerance: Tolerance) -> bool:
    """Whether no digit of PyTorch's own result is right, as of the mean of what a norm gives: 0 in float64."""
    if exact is None or not native.is_floating_point() or not native.numel():
        return False
    own, reference = native.reshape(-1), _reachable(exact, native.dtype)
    scale = reference_scale(reference, capped=not tolerance.scaled)
    return _own_totals(own, reference, scale, tolerance).rms_error() >= NO_DIGIT


def native_excess(native: torch.Tensor, exact: torch.Tensor | None, tolerance: Tolerance) -> float:
    """PyTorch's largest error relative to |ref| + scale where it is out of tolerance itself; 0 where it is not.

    Of integers: how many of them are not those of the float64 result.
    """
    if exact is None or not native.is_floating_point():
        return float(_disputed(native, exact))
    own, reference = native.reshape(-1), _reachable(exact, native.dtype)
    scale = reference_scale(reference, capped=not tolerance.scaled)
    wrong = _own_totals(own, reference, scale, tolerance).mismatches
    return _native_error(own, reference, scale, tolerance.units) if wrong else 0.0


def _own_totals(native: torch.Tensor, exact: torch.Tensor, scale: float, tolerance: Tolerance) -> _Totals:
    """The errors of PyTorch's own result, judged without any slack."""
    return _Totals(tolerance, native.dtype, scale).add_all(native, native, exact)


def _native_error(native: torch.Tensor, exact: torch.Tensor, scale: float, units: float) -> float:
    """PyTorch's own largest error, beyond so many units in the last place, relative to |ref| + scale."""
    worst = 0.0
    for own, reference in zip(_chunks(native), _chunks(exact)):
        rounding = units * unit_in_last_place(reference.abs(), native.dtype)
        error = ((own.double() - reference).abs() - rounding).clamp(min=0.0) / (reference.abs() + scale + 1e-300)
        error = error[error.isfinite()]
        worst = max(worst, float(error.max()) if error.numel() else 0.0)
    return worst


class _Totals:
    """Errors gathered over chunks of one output."""

    def __init__(self, tolerance: Tolerance, dtype: torch.dtype, scale: float, slack: _Slack = _Slack()) -> None:
        self.tolerance, self.dtype, self.scale, self.slack = tolerance, dtype, scale, slack
        self.max_abs = self.max_rel = self.max_ulp = 0.0
        self.mismatches = self.special = self.extra_nan = self.elements = self.undecided = 0
        self.squares = self.native_squares = self.reference_squares = self.stated_squares = 0.0
        self.worst_position: int | None = None
        self.wrong: list[torch.Tensor] = []  # which elements, chunk by chunk
        self.excused: dict[str, Any] = {}  # fields of OutputError
        self._worst_excess = self._furthest = 0.0

    def add_all(self, *flat: torch.Tensor) -> _Totals:
        """Output, PyTorch's own and float64 reference, whole."""
        begin = 0
        for parts in zip(*map(_chunks, flat)):
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
        wrong = special & ~(_same(out, own) | _same(out, rounded))
        overflowed = exact.isfinite() & ~own.isfinite() & ~_same(own, rounded)
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
        if self.dtype in (torch.float32, torch.bfloat16):
            allowed = allowed.clamp(min=FLUSHED)
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
            self.worst_position = begin + int(excess.argmax())
        own_error = torch.where(special | ~own.isfinite(), 0.0, own - target)
        self.elements += difference.numel()
        self.squares += float((difference - room).clamp(min=0.0).square().sum())
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
            Excuse.TF32: moved,
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
        """What tf32 in convolutions excuses of each element of a chunk."""
        rounded = self.tolerance.rounded
        return torch.zeros_like(out) if rounded is None else ROUNDED_ROOM * rounded.farthest[begin:][: out.numel()]

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
        """The same for what tf32 in convolutions does."""
        return self._relative(self.elements * self.tolerance.rounded.rms**2) if self.tolerance.rounded else 0.0

    def _relative(self, squares: float) -> float:
        return math.sqrt(squares / self.reference_squares) if self.reference_squares else 0.0

    def sloppy(self) -> bool:
        """Whether the error is larger all over than roundings of the output explain.

        Of stated tolerances, which bound each element, only where tf32 excuses more: all may not be off by as much as
        one may.
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


def _same(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return (first == second) | (first.isnan() & second.isnan())


def unit_in_last_place(magnitude: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The spacing of `dtype` at each (float64, non-negative) magnitude; that of the subnormals near zero."""
    information = torch.finfo(dtype)
    exponent = torch.frexp(magnitude).exponent.double() - 1  # magnitude = m * 2**exponent, 1 <= m < 2
    smallest = math.log2(information.smallest_normal)
    exponent = torch.where(magnitude > 0, exponent.clamp(min=smallest), smallest)
    return torch.exp2(exponent) * information.eps


def _unravelled(position: int, shape: Sequence[int]) -> tuple[int, ...]:
    """As torch.unravel_index, which imports sympy: 540 modules in every worker."""
    place: list[int] = []
    for size in reversed(shape):
        position, index = divmod(position, size)
        place.append(index)
    return tuple(reversed(place))
