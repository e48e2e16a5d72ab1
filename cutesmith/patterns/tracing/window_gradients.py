"""Backward passes of pooling and interpolation: at each place of an image the sum over the windows that see it.

PyTorch adds to places by atomics. Here each place reads the few windows over it, so that sums have the same order in
every run, and a kernel writes each element once.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Sizes = Sequence[int]


@dataclass(frozen=True)
class Over:
    """Of the windows that see each place of a dimension one: its number, how it sees the place, and when it does.

    How is the tap of the window there, or the weight of what it reads. A window sees a place where all tests hold.
    """

    window: torch.Tensor
    how: torch.Tensor
    tests: tuple[torch.Tensor, ...]

    @classmethod
    def of(
        cls, window: torch.Tensor, how: torch.Tensor, count: int, *tests: torch.Tensor, before: bool, behind: bool
    ) -> Over:
        """One of `count` windows; its number may lie before the first, or behind the last, where there is none then."""
        tests += ((window >= 0),) if before else ()
        tests += ((window < count),) if behind else ()
        window = window.clamp(min=0) if before else window
        return cls(window.clamp(max=count - 1) if behind else window, how, tests)


Dims = Sequence[Sequence[Over]]
"""For each dimension the windows that may see a place."""


def _summed(dims: Dims, value: Callable[[tuple[Any, ...], list[torch.Tensor]], torch.Tensor]) -> torch.Tensor:
    """The sum of `value(windows, how)` over every choice of a window along each dimension, with its place in front."""
    parts, rank = list[torch.Tensor](), len(dims)
    for chosen in itertools.product(*dims):
        windows = [_beside(over.window, dim, rank) for dim, over in enumerate(chosen)]
        how = [_beside(over.how, dim, rank) for dim, over in enumerate(chosen)]
        tests = [_beside(test, dim, rank) for dim, over in enumerate(chosen) for test in over.tests]
        part = value((..., *windows), how)
        parts.append(torch.where(functools.reduce(torch.logical_and, tests), part, 0) if tests else part)
    return functools.reduce(torch.add, parts)


def _beside(each: torch.Tensor, dim: int, rank: int) -> torch.Tensor:
    """What belongs to each place of one of the last `rank` dimensions."""
    return each.view([-1] + [1] * (rank - 1 - dim))


def _unrounded(x: torch.Tensor) -> torch.Tensor:
    """In the type that PyTorch sums up in."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _each(sizes: int | Sizes, rank: int) -> list[int]:
    """One number for every dimension."""
    listed = [sizes] if isinstance(sizes, int) else list(sizes)
    return listed * rank if len(listed) == 1 else listed


# Pooling


def _windows_over(
    like: torch.Tensor, size: int, count: int, taps: int, stride: int, padding: int, dilation: int = 1
) -> list[Over]:
    """The windows over each place: the last, the one before, …"""
    place, found = torch.arange(size, device=like.device) + padding, list[Over]()
    span = dilation * (taps - 1) + 1
    for turn in range(-(-span // stride)):
        window, tests = place // stride - turn, list[torch.Tensor]()
        tap = beyond = place - window * stride
        if dilation > 1:
            tap = beyond // dilation
            tests.append(beyond % dilation == 0)
        if (turn + 1) * stride > span:
            tests.append(tap < taps)
            tap = tap.clamp(max=taps - 1)
        before, behind = turn > padding // stride, turn * stride < span - 1 - padding
        found.append(Over.of(window, tap, count, *tests, before=before, behind=behind))
    return found


def _shares_over(size: int, count: int, like: Any) -> list[Over]:
    """Of `count` equal shares of a dimension, rounded outwards, those over each of its places."""
    place, found = torch.arange(size, device=like.device), list[Over]()
    most = 1 if size % count == 0 else count // size if count % size == 0 else -(-count // size) + 1
    for turn in range(most):
        window = place * count // size + turn
        test = (window * size < (place + 1) * count,) if most > 1 else ()
        found.append(Over.of(window, place, count, *test, before=False, behind=most > 1))
    return found


def _col2im(x: torch.Tensor, size: Sizes, taps: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> torch.Tensor:
    """At each place of the image the sum of what the windows over it have there; PyTorch has no decomposition."""
    *batch, rows, _ = x.shape
    spans = list(zip(size, taps, stride, padding, dilation, strict=True))
    counts = [(n + 2 * pad - apart * (tap - 1) - 1) // step + 1 for n, tap, step, pad, apart in spans]
    columns = x.view(*batch, rows // math.prod(taps), *taps, *counts)
    dims = [_windows_over(x, n, count, *rest) for (n, *rest), count in zip(spans, counts, strict=True)]
    return _summed(dims, lambda windows, at: columns[(..., *at, *windows[1:])])


def _avg_pool_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    *,
    rank: int,
) -> torch.Tensor:
    """A window's gradient is shared by its elements; how many these are is known from its place."""
    taps, pads = _each(kernel_size, rank), _each(padding, rank)
    steps = _each(stride, rank) if stride else taps
    spans = list(zip(x.shape[-rank:], grad.shape[-rank:], taps, steps, pads, strict=True))
    share, equal = _unrounded(grad), not ceil_mode and (count_include_pad or not any(pads))
    divisor = divisor_override or (math.prod(taps) if equal else 1)
    for dim, (size, count, tap, step, pad) in enumerate(spans if not equal and not divisor_override else ()):
        first = torch.arange(count, device=x.device) * step - pad
        end = (first + tap).clamp(max=size + pad)
        seen = end - first if count_include_pad else end.clamp(max=size) - first.clamp(min=0)
        share = share / _beside(seen, dim, rank)
    total = _summed([_windows_over(x, *span) for span in spans], lambda windows, _: share[windows])
    return (total / divisor).to(grad.dtype)


def _adaptive_avg_pool_backward(grad: torch.Tensor, x: torch.Tensor, *, rank: int) -> torch.Tensor:
    share, spans = _unrounded(grad), list(zip(x.shape[-rank:], grad.shape[-rank:], strict=True))
    for dim, (size, count) in enumerate(spans):
        window = torch.arange(count, device=x.device)
        seen = ((window + 1) * size + count - 1) // count - window * size // count
        share = share / _beside(seen, dim, rank)
    return _summed([_shares_over(*span, x) for span in spans], lambda windows, _: share[windows]).to(grad.dtype)


def _max_pool_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    indices: torch.Tensor,
    *,
    rank: int,
) -> torch.Tensor:
    taps = _each(kernel_size, rank)
    given = (taps, _each(stride, rank) if stride else taps, _each(padding, rank), _each(dilation, rank))
    spans = zip(x.shape[-rank:], grad.shape[-rank:], *given, strict=True)
    return _of_largest(grad, indices, x, [_windows_over(x, *span) for span in spans])


def _max_pool2d_backward(grad: torch.Tensor, x: torch.Tensor, *windows: Any) -> torch.Tensor:
    """A scatter, predicted to take 129 µs where a pass over windows takes 137; PyTorch 2.11 has no decomposition."""
    from torch._prims_common import suggest_memory_format

    *_, indices = windows
    flat = x.new_zeros((*x.shape[:-2], x.shape[-2] * x.shape[-1]))
    summed = flat.scatter_add(-1, indices.flatten(-2), grad.flatten(-2)).view(x.shape)
    return summed.contiguous(memory_format=suggest_memory_format(x))


def _adaptive_max_pool_backward(
    grad: torch.Tensor, x: torch.Tensor, indices: torch.Tensor, *, rank: int
) -> torch.Tensor:
    spans = zip(x.shape[-rank:], grad.shape[-rank:], strict=True)
    return _of_largest(grad, indices, x, [_shares_over(*span, x) for span in spans])


def _of_largest(grad: torch.Tensor, indices: torch.Tensor, x: torch.Tensor, dims: Dims) -> torch.Tensor:
    """The gradients of the windows over a place whose largest element it is."""
    sizes, given = x.shape[-len(dims) :], _unrounded(grad)
    own = torch.arange(math.prod(sizes), device=x.device, dtype=torch.int32).view(sizes)
    chosen = _summed(dims, lambda windows, _: torch.where(indices[windows].int() == own, given[windows], 0))
    return chosen.to(grad.dtype)


# Interpolation

MOST_READS = 64
"""Outputs that one launch adds up at each place; where there are more, dimensions follow each other."""

Reads = Callable[[int, int, float | None, Any], list[Over]]
"""The outputs, of so many, that read each place of a dimension, with their weights; the scale where one is given."""


def _nearest_reads(size: int, count: int, scale: float | None, like: Any, *, centred: bool = False) -> list[Over]:
    apart, found = 1 / scale if scale else size / count, list[Over]()
    place = torch.arange(size, device=like.device)
    ratio = count // size
    if ratio * size == count and scale in (None, ratio):
        return [Over(place * ratio + turn, place * 0.0 + 1, ()) for turn in range(ratio)]
    first = (place / apart).floor().long() - 1  # one more on both sides, as places are rounded
    for turn in range(math.ceil(1 / apart) + 3):
        output = first + turn
        read = ((output + (0.5 if centred else 0.0)) * apart).floor().clamp(max=size - 1)
        found.append(Over.of(output, place * 0.0 + 1, count, read == place, before=True, behind=True))
    return found


def _linear_reads(size: int, count: int, scale: float | None, like: Any, *, aligned: bool) -> list[Over]:
    if not aligned and count % size == 0 and scale in (None, count / size):
        return _linear_reads_of_whole(size, count, like)
    found = list[Over]()
    for output, place, at in _candidates(size, count, scale, aligned, 1, like):
        at = at.clamp(min=0)
        below = at.floor()
        share, above = at - below, (below + 1).clamp(max=size - 1)
        weight = torch.where(below == place, 1 - share, 0) + torch.where(above == place, share, 0)
        found.append(Over.of(output, weight, count, before=True, behind=True))
    return found


def _linear_reads_of_whole(size: int, count: int, like: Any) -> list[Over]:
    """By a whole ratio every place is read by outputs at the same distances; the first and last have those beyond."""
    ratio, place, found = count // size, torch.arange(size, device=like.device), list[Over]()
    for turn in range(math.floor(-ratio / 2 - 0.5) + 1, math.ceil(1.5 * ratio - 0.5)):
        apart = (turn + 0.5) / ratio - 0.5
        end = place == (0 if apart < 0 else size - 1)
        output, weight = place * ratio + turn, torch.where(end, 1.0, 1 - abs(apart))
        found.append(Over.of(output, weight, count, before=turn < 0, behind=turn >= ratio))
    return found


def _cubic_reads(size: int, count: int, scale: float | None, like: Any, *, aligned: bool) -> list[Over]:
    found = list[Over]()
    for output, place, at in _candidates(size, count, scale, aligned, 2, like):
        below = at.floor()
        weight: Any = 0.0
        for tap, share in enumerate(_cubic_weights(at - below), -1):
            weight = weight + torch.where((below + tap).clamp(0, size - 1) == place, share, 0)
        found.append(Over.of(output, weight, count, before=True, behind=True))
    return found


def _cubic_weights(share: torch.Tensor) -> list[torch.Tensor]:
    """Keys' cubic convolution with a = -0.75, as PyTorch has it, at distances 1 + t, t, 1 - t and 2 - t."""
    a = -0.75
    first, last = share + 1, 2 - share
    near = [((a + 2) * x - (a + 3)) * x * x + 1 for x in (share, 1 - share)]
    far = [((a * x - 5 * a) * x + 8 * a) * x - 4 * a for x in (first, last)]
    return [far[0], *near, far[1]]


def _candidates(
    size: int, count: int, scale: float | None, aligned: bool, reach: int, like: Any
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Outputs that may read each place within a reach: their numbers, the place, and where they lie among places."""
    place = torch.arange(size, device=like.device)
    if aligned:
        apart, first = (size - 1) / (count - 1) if count > 1 else 0.0, 0.0
    else:
        apart = 1 / scale if scale else size / count
        first = 0.5 * apart - 0.5
    if not apart:
        for turn in range(count):
            yield torch.full_like(place, turn), place, place * 0.0
        return
    begin = ((place - (reach + first)) / apart).floor().long()
    for turn in range(math.ceil(2 * reach / apart) + 2):  # one more on both sides, as places are rounded
        output = begin + turn
        yield output, place, output * apart + first


def _read(grad: torch.Tensor, sizes: Sizes, scales: Sequence[float | None], reads: Reads) -> torch.Tensor:
    """At each place the gradients of the outputs that read it, by their weights."""
    given, rank = _unrounded(grad), len(sizes) - 2

    def weighted(windows: tuple[Any, ...], weights: list[torch.Tensor]) -> torch.Tensor:
        return given[windows] * functools.reduce(torch.mul, weights).to(given.dtype)

    along = zip(sizes[2:], grad.shape[2:], [*scales, *[None] * rank][:rank], strict=True)
    dims = [reads(*dim, grad) for dim in along]
    if math.prod(map(len, dims)) <= MOST_READS:
        return _summed(dims, weighted).to(grad.dtype)
    for dim, overs in enumerate(dims):
        given = _along(given, overs, 2 + dim)
    return given.to(grad.dtype)


def _along(given: torch.Tensor, overs: Sequence[Over], dim: int) -> torch.Tensor:
    """One dimension of an image read by its outputs."""
    turned = given.movedim(dim, -1)
    summed = _summed([overs], lambda windows, how: turned[windows] * how[0].to(given.dtype))
    return summed.movedim(-1, dim)


def _nearest_backward(
    reads: Reads, grad: torch.Tensor, output_size: Sizes, input_size: Sizes, *scales: float | None
) -> torch.Tensor:
    return _read(grad, input_size, scales, reads)


def _smooth_backward(
    reads: Any, grad: torch.Tensor, output_size: Sizes, input_size: Sizes, aligned: bool, *scales: float | None
) -> torch.Tensor:
    return _read(grad, input_size, scales, functools.partial(reads, aligned=aligned))


def _table() -> Iterator[tuple[str, Callable[..., Any]]]:
    yield "col2im", _col2im
    for rank in (2, 3):
        yield f"avg_pool{rank}d_backward", functools.partial(_avg_pool_backward, rank=rank)
        yield f"_adaptive_avg_pool{rank}d_backward", functools.partial(_adaptive_avg_pool_backward, rank=rank)
        yield f"adaptive_max_pool{rank}d_backward", functools.partial(_adaptive_max_pool_backward, rank=rank)
    yield "max_pool2d_with_indices_backward", _max_pool2d_backward
    yield "max_pool3d_with_indices_backward", functools.partial(_max_pool_backward, rank=3)
    centred = functools.partial(_nearest_reads, centred=True)
    for rank, linear in ((1, "linear"), (2, "bilinear"), (3, "trilinear")):
        yield f"upsample_nearest{rank}d_backward", functools.partial(_nearest_backward, _nearest_reads)
        yield f"_upsample_nearest_exact{rank}d_backward", functools.partial(_nearest_backward, centred)
        yield f"upsample_{linear}{rank}d_backward", functools.partial(_smooth_backward, _linear_reads)
    yield "upsample_bicubic2d_backward", functools.partial(_smooth_backward, _cubic_reads)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {getattr(torch.ops.aten, name).default: rule for name, rule in _table()}
