"""A reference tried on changed inputs: whether it is a function of them, and of all of them.

Whether an input matters is asked of the float64 result: there `x + y - y` differs from `x + z - z` by no more than
rounding, far below what any function worth a kernel makes of another input.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cutesmith.judge.reference_side.cases import Values
from cutesmith.judge.reference_side.precision import in_float64
from cutesmith.judge.reference_side.problem_calls import native_outputs
from cutesmith.judge.transfer.tensors import copy_of

Outputs = Sequence[torch.Tensor]
Function = Callable[..., Any]
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
NOISE = 1e-9  # relative to the largest element: what float64 rounding makes, and less than any meant difference

_LEVELS = 4.0  # of a coarse draw, on either side of zero


@dataclass(frozen=True)
class Run:
    """One call of the reference in its own precision: what it returned and what else it did."""

    outputs: list[torch.Tensor]
    is_tuple: bool
    changed: tuple[int, ...]  # inputs that were written to
    drew: bool  # random numbers


def run(reference_fn: Function, values: Sequence[Any]) -> Run:
    """Call the reference on copies of the inputs; raises what it raises."""
    copies, state = [copy_of(value) for value in values], torch.get_rng_state()
    outputs, is_tuple = native_outputs(reference_fn, copies)
    drew = not torch.equal(state, torch.get_rng_state())
    changed = tuple(index for index, pair in enumerate(zip(values, copies)) if not _same_value(*pair))
    return Run([copy_of(output) for output in outputs], is_tuple, changed, drew)


def exact(reference_fn: Function, values: Sequence[Any]) -> list[torch.Tensor] | str:
    """The float64 results, or what the function raises there."""
    try:
        returned = in_float64(reference_fn, [copy_of(value) for value in values])
    except Exception as error:  # noqa: BLE001 - whatever it is, there is no float64 form
        return f"{type(error).__name__}: {str(error)[:200]}".rstrip(": ")
    outputs = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    return [output.detach() for output in outputs if isinstance(output, torch.Tensor)]


def same_bits(first: Outputs, second: Outputs) -> bool:
    """Whether two results are equal to the bit."""
    return len(first) == len(second) and all(map(_same_value, first, second))


def _same_value(first: Any, second: Any) -> bool:
    if not isinstance(first, torch.Tensor):
        return True  # a scalar cannot be written to
    same_kind = first.shape == second.shape and first.dtype == second.dtype
    return same_kind and bool(torch.equal(_bits(first), _bits(second)))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as integers: NaN equals NaN, and types compare that cannot by themselves."""
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real.view(_INTEGERS[real.element_size()])


def differ(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two float64 results differ by more than rounding; two of another type, at all."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return True
    if not first.is_floating_point():
        return not torch.equal(first, second)
    first, second = first.double(), second.double()
    finite = first.isfinite() & second.isfinite()
    if not torch.equal(first[~finite].nan_to_num(7.0), second[~finite].nan_to_num(7.0)):
        return True
    if not bool(finite.any()):
        return False
    scale = max(float(first[finite].abs().max()), float(second[finite].abs().max()))
    return float((first - second)[finite].abs().max()) > NOISE * scale


class Influence:
    """Which inputs change which outputs, gathered over bases: inputs on which the reference works.

    Without `in_float64` every difference counts, also one of rounding. After `seconds` no more is tried.
    """

    def __init__(self, reference_fn: Function, *, in_float64: bool = True, seconds: float = math.inf) -> None:
        self._function, self._in_float64 = reference_fn, in_float64
        self._deadline = time.monotonic() + seconds
        self.of_inputs: set[int] = set()
        self.on_outputs: set[int] = set()
        self.outputs = 0

    @property
    def late(self) -> bool:
        """Whether the time is over: an input without influence may then have some."""
        return time.monotonic() > self._deadline

    def watch(self, base: Values, other: Values) -> None:
        """Change one input of `base` at a time, first to what it is in `other`, until its change shows."""
        expected = self._results(base)
        if expected is None:
            return
        self.outputs = max(self.outputs, len(expected))
        redrawn = self._results(other) or []
        self.on_outputs |= {k for k, pair in enumerate(zip(expected, redrawn)) if differ(*pair)}
        for index, value in enumerate(base):
            if index not in self.of_inputs and not self.late:
                alternatives = changes(value, other[index] if index < len(other) else None)
                self._try(index, base, expected, alternatives)

    def _try(self, index: int, base: Values, expected: Outputs, alternatives: Iterator[Any]) -> None:
        for change in alternatives:
            if self.late:
                return
            results = self._results([*base[:index], change, *base[index + 1 :]])
            if results is None:  # refused: so it was read
                self.of_inputs.add(index)
                return
            changed = {k for k, pair in enumerate(zip(expected, results)) if differ(*pair)}
            self.on_outputs |= changed
            if changed:
                self.of_inputs.add(index)
                return

    def _results(self, values: Values) -> list[torch.Tensor] | None:
        """The float64 results, or those of the inputs' own types where there are none; None when refused."""
        found = exact(self._function, values) if self._in_float64 else ""
        if not isinstance(found, str):
            return found
        try:
            return native_outputs(self._function, [copy_of(value) for value in values])[0]
        except Exception:  # noqa: BLE001 - a change that the reference refuses
            return None


def changes(value: Any, other: Any) -> Iterator[Any]:
    """Other values for one input, of its shape and type and within its range, the likeliest to matter first.

    None for an option.
    """
    if not isinstance(value, torch.Tensor):
        if isinstance(value, bool):
            yield not value
        elif isinstance(value, float):
            yield from (value * 1.5 + 0.125, -value - 1.0)
        elif isinstance(value, int):
            yield from (value + 1, value - 1)
        return
    if isinstance(other, torch.Tensor) and other.shape == value.shape and not _same_value(value, other):
        yield other
    if value.numel() == 0:
        return
    if value.is_floating_point() or value.is_complex():
        wide = value.double() if not value.is_complex() else value
        noise = torch.rand(value.shape, device=value.device, dtype=torch.float64)
        for changed in (wide * (1 + 0.5 * noise) + 0.125 * noise, wide * 0.25, wide * 8, -wide - 1):
            yield changed.to(value.dtype)
    elif value.dtype is torch.bool:
        yield ~value
        yield torch.rand(value.shape, device=value.device) < 0.5
    else:
        yield value.reshape(-1)[torch.randperm(value.numel(), device=value.device)].reshape(value.shape)
        yield value + 1
        yield value - 1


def with_random_masks(values: Values) -> Values | None:
    """The inputs with other values in every bool tensor; None without one."""
    masks = [isinstance(value, torch.Tensor) and value.dtype is torch.bool for value in values]
    if not any(masks):
        return None
    return [
        torch.rand(value.shape, device=value.device) < 0.5 if is_mask else value
        for value, is_mask in zip(values, masks)
    ]


def with_many_ties(values: Values) -> list[Values]:
    """The inputs with few different values, and with NaN alone: ties that a judge's inputs may hold."""
    floats = [isinstance(value, torch.Tensor) and value.is_floating_point() for value in values]
    nans = [torch.full_like(value, torch.nan) if takes_nan else value for value, takes_nan in zip(values, floats)]
    return [[_coarse(value) for value in values], nans]


def _coarse(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        return value
    wide = value.double()
    step = wide.abs().nan_to_num(0.0, 0.0, 0.0).max().clamp_min(1e-30) / _LEVELS
    return ((wide / step).round() * step).to(value.dtype)
