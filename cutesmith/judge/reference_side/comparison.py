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
from dataclasses import dataclass, replace
from typing import Any

import torch

from cutesmith.judge.reference_side import wrong_places
from cutesmith.judge.reference_side.rounded_factors import TF32
from cutesmith.judge.reference_side.tolerance import (
    DERIVED_SLACK,
    NATIVE_BOUND,
    NATIVE_SLACK,
    NO_DIGIT,
    ROUNDINGS,
    Tolerance,
    flushed_below,
)
from cutesmith.judge.reference_side.totals import Slack, Totals, chunks, unit_in_last_place
from cutesmith.verdicts import Excuse, Mechanism, OutputError, Rule, Violation


@dataclass(frozen=True)
class Comparison:
    """One output judged: the numbers, and what is wrong with it; `note` says what was allowed beyond the tolerance.

    `rounded`: it was compared with what tf32 in convolutions costs. `decided`: not every value passes everywhere,
    and the reference is finite somewhere.
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
    is the mean of what a norm gives, 0 in float64 and 1e-8 in float32, and what a GPU may flush to 0 (a MobileNet gives
    1e-45 for images of 1e-24).
    """
    known = comparison.violation
    error, flushed = comparison.error, flushed_below(actual.dtype)
    rounded = not known and (error.max_ulp <= ROUNDINGS or error.max_abs <= flushed)
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
        return Comparison(error, rounded=_by_tf32(tolerance))
    error = replace(error, where=wrong_places.where(wrong.reshape(-1), error.shape))
    text = f"output {index}: {mismatches} of {actual.numel()} elements differ{_places(error)}; {_worst(error)}"
    return Comparison(error, _wrong(text))


def _by_tf32(tolerance: Tolerance) -> bool:
    """Whether what tf32 in convolutions costs was allowed."""
    return tolerance.rounded is not None and TF32 in tolerance.rounded.types


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
    totals = Totals(tolerance, actual.dtype, scale, slack).add_all(*flat)
    error = _output_error(
        index,
        actual,
        exact,
        totals.worst_position,
        max_abs=totals.max_abs,
        max_rel=totals.max_rel,
        max_ulp=totals.max_ulp,
        mismatches=totals.mismatches,
        where=wrong_places.where(torch.cat(totals.wrong), actual.shape) if totals.mismatches else "",
        rtol=tolerance.rtol,
        atol=tolerance.atol * scale,
        units=tolerance.units,
        rms=totals.rms_error() if totals.reference_squares else None,
        rms_native=totals.rms_native() if totals.reference_squares else None,
        **totals.excused,
    )
    notes = [slack.note] if slack.note else []
    hollow = bool(flat[2].numel()) and not bool(flat[2].to(actual.dtype).double().isfinite().any())
    if hollow:
        notes.append("the reference is Inf or NaN everywhere")
    if tolerance.may_be_nan is not None:
        count = int(tolerance.may_be_nan.sum())
        notes.append(f"{count} elements may be NaN, where padding or a masked key meets what is not finite")
    if tolerance.moved:
        moved = f"roundings of the inputs to float32 move it by {totals.moved():.2g} of the reference"
        notes.append(f"ill-conditioned: {moved}")
    if tolerance.rounded:
        notes.append(f"{tolerance.rounded.words} moves it by {totals.rounded():.2g} of the reference")
    note = f"output {index}: {'; '.join(notes)}" if notes else ""
    decided = not error.elements or (totals.undecided < error.elements and not hollow)
    return Comparison(
        error,
        _judge(error, totals),
        note,
        rounded=tolerance.rounded is not None and TF32 in tolerance.rounded.types,
        decided=decided,
    )


def _judge(error: OutputError, totals: Totals) -> Violation | None:
    where = f"output {error.output}"
    if totals.special:
        rule = Rule.O6 if totals.extra_nan else None
        what = "NaN where the reference has none" if totals.extra_nan else "NaN or Inf not where the reference has them"
        text = f"{totals.special} of {error.elements} elements are {what}{_places(error)}"
        return _wrong(f"{where}: {text}; {_worst(error)}", rule)
    if error.mismatches:
        text = f"{error.mismatches} of {error.elements} elements are out of tolerance{_places(error)}"
        off, allowed = totals.worst_pair
        return _wrong(f"{where}: {text}; {_worst(error)}, off by {off:.3g} where {allowed:.3g} is allowed")
    if totals.sloppy():
        share = f"{totals.rms_error():.2g} of the reference's, PyTorch's own {totals.rms_native():.2g}"
        advice = "accumulate in a wider type"
        if rounded := totals.tolerance.rounded:
            advice = f"{rounded.words} explains {totals.rounded():.2g}: round to nearest, and once"
        return _wrong(f"{where}: the root mean square error is {share}: {advice}", Rule.O9)
    return None


def _places(error: OutputError) -> str:
    return f" ({error.where})" if error.where else ""


def _wrong(text: str, rule: Rule | None = None) -> Violation:
    return Violation(rule, Mechanism.FLOAT64_REFERENCE, text, reject=False)


def _worst(error: OutputError) -> str:
    place = list(error.worst_index)
    return f"worst at {place}: {error.worst_actual} instead of {error.worst_expected}"


def reference_scale(exact: torch.Tensor, *, capped: bool) -> float:
    """The magnitude of a flat reference: its root mean square, but no more than 32 medians of what is not zero."""
    squares, count = 0.0, 0
    for part in chunks(exact):
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


def _native_slack(native: torch.Tensor, exact: torch.Tensor, scale: float, tolerance: Tolerance) -> Slack:
    """PyTorch's largest error, doubled and bounded by the tolerance; see the module for derived inputs."""
    error = _native_error(native, exact, scale, tolerance.units)
    bounded = min(NATIVE_SLACK * error, NATIVE_BOUND * tolerance.rtol)
    if not tolerance.derived:
        return Slack(bounded)
    own = _own_totals(native, exact, scale, tolerance)
    if own.rms_error() >= NO_DIGIT:
        note = "ill-conditioned: no digit of PyTorch's own result is right, any number passes"
        return Slack(math.inf, math.inf, note, Excuse.NO_DIGIT)
    excess = max(tolerance.native_error, error if own.mismatches else 0.0)
    if excess == 0:
        return Slack(bounded)
    note = f"ill-conditioned: PyTorch's own error is {excess:.2g} of the reference, {DERIVED_SLACK:g} times that passes"
    excuse = Excuse.NEARBY if tolerance.native_error == excess else Excuse.PYTORCH
    return Slack(max(bounded, DERIVED_SLACK * excess), DERIVED_SLACK, note, excuse)


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


def _own_totals(native: torch.Tensor, exact: torch.Tensor, scale: float, tolerance: Tolerance) -> Totals:
    """The errors of PyTorch's own result, judged without any slack."""
    return Totals(tolerance, native.dtype, scale).add_all(native, native, exact)


def _native_error(native: torch.Tensor, exact: torch.Tensor, scale: float, units: float) -> float:
    """PyTorch's own largest error, beyond so many units in the last place, relative to |ref| + scale."""
    worst = 0.0
    for own, reference in zip(chunks(native), chunks(exact)):
        rounding = units * unit_in_last_place(reference.abs(), native.dtype)
        error = ((own.double() - reference).abs() - rounding).clamp(min=0.0) / (reference.abs() + scale + 1e-300)
        error = error[error.isfinite()]
        worst = max(worst, float(error.max()) if error.numel() else 0.0)
    return worst


def _unravelled(position: int, shape: Sequence[int]) -> tuple[int, ...]:
    """As torch.unravel_index, which imports sympy: 540 modules in every worker."""
    place: list[int] = []
    for size in reversed(shape):
        position, index = divmod(position, size)
        place.append(index)
    return tuple(reversed(place))
