"""What the rounding of factors costs a function: in convolutions to tf32, in products with 16-bit numbers to 16 bits.

PyTorch itself rounds float32 convolutions on a GPU, by its default flag for cuDNN. A product of float32 whose one
factor holds numbers of a 16-bit input (`softmax(scores) @ v.float()`) is computed on tensor cores, whose factors have
one type: the other is rounded to that type. The function runs in float64 with such factors rounded, and all that
follows carries the error on. One run rounds to nearest, as tensor cores are fed; in others each factor is off by as
much as rounding makes it, at random, for kernels that round other numbers (with a scale folded into the weights).
In the last two factors are off by `FURTHER` times as much, one way and the other. Such an element may be off by that
much, and where most of a ReLU's results are 0 one beside its knee, with all its neighbours, stays in the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from cutesmith.errors import UnavailableError
from cutesmith.judge.reference_side.precision import in_float64
from cutesmith.judge.transfer.tensors import copy_of
from cutesmith.problems.precision_flags import convolutions_may_round
from cutesmith.sandbox.dispatch_modes import LightMode

RANDOM_DRAWS = 2
INTEGER_DRAWS = 16  # the place of the largest of two numbers that tf32 may exchange stays in one of so many in 65536
FURTHER = 8.0  # times as far: those of an element's errors that the others do not show
BLOCK = 64  # neighbours, of which it is luck that one hardly moved in a few draws
LEAST_SHARE = 0.5  # of how far all move: what lies below the knee of a ReLU hardly moves in a few draws
FLOAT64_BITS = 53  # of its significand
UNMEASURED = 2.0**1.5  # units in the last place of a factor; of tf32, sums of products move by 2**-11.7 of their size
CONVOLUTION = torch.ops.aten.convolution.default
_aten = torch.ops.aten
PRODUCTS = {_aten.mm.default: 0, _aten.bmm.default: 0, _aten.addmm.default: 1, _aten.baddbmm.default: 1}
"""Products of matrices, and the place of the first of their two factors."""


@dataclass(frozen=True)
class Narrow:
    """A type that factors are rounded to: bits of its significand, and the exponent of its least normal number."""

    words: str
    bits: int
    least: int = -126

    def nearest(self, value: torch.Tensor) -> torch.Tensor:
        """float64 numbers rounded to nearest: the upper half of Veltkamp's splitting.

        Below `least` they are multiples of a step. What is too large for the type stays.
        """
        far = value * (2.0 ** (FLOAT64_BITS - self.bits) + 1)
        step = 2.0 ** (self.least + 1 - self.bits)
        return torch.where(value.abs() < 2.0**self.least, (value / step).round() * step, far - (far - value))

    def half_unit(self, value: torch.Tensor) -> torch.Tensor:
        """Half a unit in the last place of each number."""
        exponent = torch.frexp(value).exponent.double().clamp(min=self.least + 1)
        return torch.exp2(exponent - (self.bits + 1))


TF32 = Narrow("tf32 in its convolutions", 11)
HALVES = {
    torch.float16: Narrow("float16 in its products", 11, -14),
    torch.bfloat16: Narrow("bfloat16 in its products", 8),
}
Pair = tuple["Narrow | None", "Narrow | None"]  # what the two factors of an operation are rounded to


@dataclass(frozen=True, eq=False)
class RoundedFactors:
    """How far each element of a float64 result moves, flat, and the result in the root mean square at most.

    `types`: what factors were rounded to. `integers`: what an integer result becomes.
    """

    farthest: torch.Tensor
    rms: float
    types: tuple[Narrow, ...] = (TF32,)
    integers: tuple[torch.Tensor, ...] = ()

    @property
    def words(self) -> str:
        """Such as "tf32 in its convolutions"."""
        return " and ".join(narrow.words for narrow in self.types)


def rounded_factors(
    function: Callable[..., Any], values: Sequence[Any], exact: Sequence[torch.Tensor | None]
) -> list[RoundedFactors | None]:
    """How far rounded factors move each of the float64 results `exact` of `values`.

    None for a result that stays, and for all where no factor may be rounded.
    """
    seen = _Factors.seen(function, values)
    if not seen.types:
        return [None] * len(exact)
    moved = [_Moved.of(result) for result in exact]
    integers = any(result is not None and not result.is_floating_point() for result in exact)
    *seeds, last = torch.randint(1 << 31, ((INTEGER_DRAWS if integers else RANDOM_DRAWS) + 1,)).tolist()
    draws = [(None, 1.0), *((seed, 1.0) for seed in seeds)]
    if not integers:
        draws += [(last, FURTHER), (last, -FURTHER)]
    for seed, times in draws:
        results = _results(function, values, _Rounding(seen.pairs, seed, times), wide=True)
        for one, result in zip(moved, results):
            one.add(result, times)
    return [one.summary(seen.types) for one in moved]


def unmeasured_factors(
    function: Callable[..., Any], values: Sequence[Any], exact: Sequence[torch.Tensor | None]
) -> list[RoundedFactors | None]:
    """The same by a rule of thumb, for tensors so large that there is no memory to measure it in float64."""
    seen = _Factors.seen(function, values)
    return [_unmeasured(result, seen.types) if seen.types else None for result in exact]


def _unmeasured(exact: torch.Tensor | None, types: tuple[Narrow, ...]) -> RoundedFactors | None:
    if exact is None or not exact.is_floating_point() or not exact.numel():
        return None
    share = UNMEASURED * 2.0 ** -min(narrow.bits for narrow in types)
    rms = share * float(torch.linalg.vector_norm(exact)) / math.sqrt(exact.numel())
    return RoundedFactors(exact.new_tensor(rms).expand(exact.numel()), rms, types) if math.isfinite(rms) else None


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


class _Factors(LightMode):
    """Within it, it is noted of each convolution and product what its factors may be rounded to.

    `halves`: the 16-bit types of the function's inputs.
    """

    def __init__(self, halves: Collection[torch.dtype]) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.halves = halves
        self.pairs: list[Pair] = []

    @classmethod
    def seen(cls, function: Callable[..., Any], values: Sequence[Any]) -> _Factors:
        """What a call on copies of the values does."""
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        mode = cls([dtype for dtype in HALVES if any(value.dtype == dtype for value in tensors)])
        _results(function, values, mode, wide=False)
        return mode

    @property
    def types(self) -> tuple[Narrow, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys(narrow for pair in self.pairs for narrow in pair if narrow))

    def dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See `LightMode`."""
        if func is CONVOLUTION:
            self.pairs.append((TF32, TF32) if _may_round(*args) else (None, None))
        elif func in PRODUCTS:
            with torch._C.DisableTorchFunction():  # where tensors pose as CUDA's
                self.pairs.append(_beside_halves(*args[PRODUCTS[func] :][:2], halves=self.halves))
        return func(*args, **kwargs)


def _may_round(image: torch.Tensor, weight: torch.Tensor, *others: Any) -> bool:
    """Whether cuDNN computes such a convolution, in float32, and may round; depthwise ones have kernels of PyTorch."""
    *_, transposed, _, groups = others
    depthwise = not transposed and groups > 1 and groups == image.shape[1]
    return image.dtype == weight.dtype == torch.float32 and not depthwise and convolutions_may_round()


def _beside_halves(first: torch.Tensor, second: torch.Tensor, *, halves: Iterable[torch.dtype]) -> Pair:
    """The type of the factor that holds 16-bit numbers, for the other one; none where both do or none does."""
    if first.dtype != torch.float32 or second.dtype != torch.float32:
        return None, None
    kept = [next((dtype for dtype in halves if _holds(factor, dtype)), None) for factor in (first, second)]
    narrow = [HALVES[dtype] if dtype else None for dtype in kept]
    return (None, None) if all(narrow) else (narrow[1], narrow[0])


def _holds(factor: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether every number of it is one of that type."""
    return bool(((factor.to(dtype).to(factor.dtype) == factor) | factor.isnan()).all())


class _Rounding(LightMode):
    """Within it, the factors of convolutions and products are rounded to what `pairs` says, in the order of calls.

    With a seed they are off by up to half a unit in the last place, `times` as much, but for those that have no more
    bits.
    """

    def __init__(self, pairs: Sequence[Pair], seed: int | None, times: float = 1.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.pairs, self.seed, self.times, self.count = pairs, seed, times, 0
        self.generator: torch.Generator | None = None

    def dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See `LightMode`."""
        begin = 0 if func is CONVOLUTION else PRODUCTS.get(func)
        if begin is not None and self.count < len(self.pairs):
            pair = self.pairs[self.count]
            self.count += 1
            with torch._C.DisableTorchFunction():  # where tensors pose as CUDA's
                factors = [self._rounded(factor, narrow) for factor, narrow in zip(args[begin:], pair)]
            args = (*args[:begin], *factors, *args[begin + 2 :])
        return func(*args, **kwargs)

    def _rounded(self, value: torch.Tensor, narrow: Narrow | None) -> torch.Tensor:
        if narrow is None:
            return value
        error = narrow.nearest(value) - value
        error = torch.where(error.isfinite(), error, 0.0)
        if self.seed is None:
            return value + error
        if self.generator is None:
            self.generator = torch.Generator(value.device).manual_seed(self.seed)
        parts = torch.rand(value.shape, generator=self.generator, dtype=value.dtype, device=value.device)
        return value + torch.where(error == 0, 0.0, self.times * narrow.half_unit(value) * (2 * parts - 1))


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

    def add(self, result: Any, times: float) -> None:
        """Another draw of the result, with factors `times` as far off: an element moved by that share of it."""
        exact = self.exact
        if exact is None or not isinstance(result, torch.Tensor) or result.shape != exact.shape:
            return
        if not exact.is_floating_point():
            self.others.append(result)
            return
        distance = (result.double() - exact.double()).abs().reshape(-1)
        distance = torch.where(distance.isfinite(), distance, 0.0)
        self.farthest = torch.maximum(self.farthest, distance / abs(times))
        if abs(times) > 1:  # all may not be off by as much as one may
            return
        self.rms = max(self.rms, float(distance.square().mean().sqrt()) if distance.numel() else 0.0)

    def summary(self, types: tuple[Narrow, ...]) -> RoundedFactors | None:
        """What is known of the result; None where it never moved. `types`: what factors were rounded to."""
        if self.others:
            return RoundedFactors(torch.zeros(0), 0.0, types, tuple(self.others))
        if not self.rms:
            return None
        nearby = _of_blocks(self.farthest)
        least = torch.where(nearby > 0, LEAST_SHARE * self.rms, 0.0)
        return RoundedFactors(torch.maximum(self.farthest, torch.maximum(nearby, least)), self.rms, types)


def _of_blocks(distance: torch.Tensor) -> torch.Tensor:
    """The root mean square of each `BLOCK` neighbours: that an element hardly moved in few draws is luck."""
    count = math.ceil(distance.numel() / BLOCK)
    padded = torch.nn.functional.pad(distance, (0, count * BLOCK - distance.numel())).view(count, BLOCK)
    counted = torch.full((count, 1), float(BLOCK), dtype=distance.dtype, device=distance.device)
    counted[-1] = distance.numel() - (count - 1) * BLOCK
    means = (padded.square().sum(-1, keepdim=True) / counted).sqrt()
    return means.expand(count, BLOCK).reshape(-1)[: distance.numel()]
