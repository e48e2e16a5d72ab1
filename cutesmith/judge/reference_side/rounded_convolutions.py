"""What the rounding of float32 convolutions to tf32 costs a function, where PyTorch's flag for cuDNN allows it.

On a GPU PyTorch itself computes them so, by its default flag. The function runs in float64 with the factors of each
such convolution rounded to 11 bits, and all that follows carries the error on. One run rounds to nearest, as tensor
cores are fed; in others each factor is off by as much as rounding makes it, at random, for kernels that round other
numbers (with a scale folded into the weights).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from cutesmith.errors import UnavailableError
from cutesmith.judge.reference_side.precision import in_float64
from cutesmith.judge.transfer.tensors import copy_of
from cutesmith.problems.precision_flags import convolutions_may_round
from cutesmith.sandbox.dispatch_modes import LightMode

RANDOM_DRAWS = 3
INTEGER_DRAWS = 16  # the place of the largest of two numbers that tf32 may exchange stays in one of so many in 65536
BLOCK = 64  # neighbours, of which it is luck that one hardly moved in a few draws
LEAST_SHARE = 0.5  # of how far all move: what lies below the knee of a ReLU hardly moves in a few draws
DROPPED_BITS = 53 - 11  # of float64's significand
UNMEASURED = 2.0**-9.5  # of a result; sums of products move by 2**-11.7 of their size, by bfloat16 factors 2**-8.7
CONVOLUTION = torch.ops.aten.convolution.default


@dataclass(frozen=True, eq=False)
class RoundedFactors:
    """How far each element of a float64 result moves, flat, and the result in the root mean square at most.

    `integers`: what an integer result becomes.
    """

    farthest: torch.Tensor
    rms: float
    integers: tuple[torch.Tensor, ...] = ()


def rounded_factors(
    function: Callable[..., Any], values: Sequence[Any], exact: Sequence[torch.Tensor | None]
) -> list[RoundedFactors | None]:
    """How far tf32 moves each of the float64 results `exact` of `values`.

    None for a result that stays, and for all where no float32 convolution may be rounded.
    """
    seen = _Convolutions()
    _results(function, values, seen, wide=False)
    if not any(seen.may_round):
        return [None] * len(exact)
    moved = [_Moved.of(result) for result in exact]
    integers = any(result is not None and not result.is_floating_point() for result in exact)
    draws = INTEGER_DRAWS if integers else RANDOM_DRAWS
    for seed in (None, *torch.randint(1 << 31, (draws,)).tolist()):
        results = _results(function, values, _Rounding(seen.may_round, seed), wide=True)
        for one, result in zip(moved, results):
            one.add(result)
    return [one.summary() for one in moved]


def unmeasured_factors(
    function: Callable[..., Any], values: Sequence[Any], exact: Sequence[torch.Tensor | None]
) -> list[RoundedFactors | None]:
    """The same by a rule of thumb, for tensors so large that there is no memory to measure it in float64."""
    seen = _Convolutions()
    _results(function, values, seen, wide=False)
    return [_unmeasured(result) if any(seen.may_round) else None for result in exact]


def _unmeasured(exact: torch.Tensor | None) -> RoundedFactors | None:
    if exact is None or not exact.is_floating_point() or not exact.numel():
        return None
    rms = UNMEASURED * float(torch.linalg.vector_norm(exact)) / math.sqrt(exact.numel())
    return RoundedFactors(exact.new_tensor(rms).expand(exact.numel()), rms) if math.isfinite(rms) else None


def _results(function: Callable[..., Any], values: Sequence[Any], mode: LightMode, *, wide: bool) -> Sequence[Any]:
    """What the function returns for copies of the values within a mode; nothing where it refuses them."""
    copies = [copy_of(value) for value in values]
    try:
        with mode, torch.no_grad():
            returned = in_float64(function, copies) if wide else function(*copies)
    except UnavailableError:
        raise
    except Exception:  # noqa: BLE001 - not every operation exists in float64
        return ()
    return returned if isinstance(returned, (tuple, list)) else [returned]


class _Convolutions(LightMode):
    """Within it, it is noted of each convolution whether PyTorch may round its factors to tf32."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.may_round: list[bool] = []

    def dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See `LightMode`."""
        if func is CONVOLUTION:
            self.may_round.append(_may_round(*args))
        return func(*args, **kwargs)


def _may_round(image: torch.Tensor, weight: torch.Tensor, *others: Any) -> bool:
    """Whether cuDNN computes such a convolution, in float32, and may round; depthwise ones have kernels of PyTorch."""
    *_, transposed, _, groups = others
    depthwise = not transposed and groups > 1 and groups == image.shape[1]
    return image.dtype == weight.dtype == torch.float32 and not depthwise and convolutions_may_round()


class _Rounding(LightMode):
    """Within it, factors of those convolutions that `which` names, in the order of calls, have 11 bits.

    With a seed they are off by up to half a unit in the last place, but for those that have no more bits.
    """

    def __init__(self, which: Sequence[bool], seed: int | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.which, self.seed, self.count = which, seed, 0
        self.generator: torch.Generator | None = None

    def dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See `LightMode`."""
        if func is CONVOLUTION:
            image, weight, *rest = args
            if self.count < len(self.which) and self.which[self.count]:
                with torch._C.DisableTorchFunction():  # where tensors pose as CUDA's
                    args = (self._rounded(image), self._rounded(weight), *rest)
            self.count += 1
        return func(*args, **kwargs)

    def _rounded(self, value: torch.Tensor) -> torch.Tensor:
        error = to_tf32(value) - value
        error = torch.where(error.isfinite(), error, 0.0)
        if self.seed is None:
            return value + error
        if self.generator is None:
            self.generator = torch.Generator(value.device).manual_seed(self.seed)
        parts = torch.rand(value.shape, generator=self.generator, dtype=value.dtype, device=value.device)
        half_unit = torch.exp2(torch.frexp(value).exponent.double() - 12)
        return value + torch.where(error == 0, 0.0, half_unit * (2 * parts - 1))


def to_tf32(value: torch.Tensor) -> torch.Tensor:
    """float64 numbers rounded to nearest with 11 bits of significand: the upper half of Veltkamp's splitting."""
    far = value * (2.0**DROPPED_BITS + 1)
    return far - (far - value)


@dataclass
class _Moved:
    """How far the elements of a result moved so far, flat, and the largest root mean square of a draw."""

    exact: torch.Tensor | None
    farthest: torch.Tensor = field(default_factory=lambda: torch.zeros(0))
    rms: float = 0.0
    others: list[torch.Tensor] = field(default_factory=list)  # integer results

    @classmethod
    def of(cls, exact: torch.Tensor | None) -> _Moved:
        size = 0 if exact is None or not exact.is_floating_point() else exact.numel()
        return cls(exact, torch.zeros(size, dtype=torch.float64, device=None if exact is None else exact.device))

    def add(self, result: Any) -> None:
        """Another draw of the result."""
        exact = self.exact
        if exact is None or not isinstance(result, torch.Tensor) or result.shape != exact.shape:
            return
        if not exact.is_floating_point():
            self.others.append(result)
            return
        distance = (result.double() - exact.double()).abs().reshape(-1)
        distance = torch.where(distance.isfinite(), distance, 0.0)
        self.farthest = torch.maximum(self.farthest, distance)
        self.rms = max(self.rms, float(distance.square().mean().sqrt()) if distance.numel() else 0.0)

    def summary(self) -> RoundedFactors | None:
        """What is known of the result; None where it never moved."""
        if self.others:
            return RoundedFactors(torch.zeros(0), 0.0, tuple(self.others))
        if not self.rms:
            return None
        nearby = _of_blocks(self.farthest)
        least = torch.where(nearby > 0, LEAST_SHARE * self.rms, 0.0)
        return RoundedFactors(torch.maximum(self.farthest, torch.maximum(nearby, least)), self.rms)


def _of_blocks(distance: torch.Tensor) -> torch.Tensor:
    """The root mean square of each `BLOCK` neighbours: that an element hardly moved in few draws is luck."""
    count = math.ceil(distance.numel() / BLOCK)
    padded = torch.nn.functional.pad(distance, (0, count * BLOCK - distance.numel())).view(count, BLOCK)
    counted = torch.full((count, 1), float(BLOCK), dtype=distance.dtype, device=distance.device)
    counted[-1] = distance.numel() - (count - 1) * BLOCK
    means = (padded.square().sum(-1, keepdim=True) / counted).sqrt()
    return means.expand(count, BLOCK).reshape(-1)[: distance.numel()]
