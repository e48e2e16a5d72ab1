"""Lowerings of pooling over one to three dimensions: extremes with their places, means, and adaptive windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cutesmith.patterns.graph.dtypes import is_float
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.windows import Pooling, Samples, Share, Span
from cutesmith.patterns.tracing.lowering.dispatch import Lowered, Lowering, Rule, lowers
from cutesmith.patterns.tracing.scalars import TracedFloat

Sizes = int | Sequence[int]


def _each(sizes: Sizes, rank: int) -> list[int]:
    """One number for every dimension."""
    listed = [sizes] if isinstance(sizes, int) else list(sizes)
    return listed * rank if len(listed) == 1 else listed


def _spans(rank: int, taps: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, partial: bool) -> tuple[Span, ...]:
    steps = stride if stride or isinstance(stride, int) else taps
    dims = zip(_each(taps, rank), _each(steps, rank), _each(padding, rank), _each(dilation, rank), strict=True)
    return tuple(Span(*dim, partial=partial) for dim in dims)


def _pooled(low: Lowering, x: Node, pooling: Pooling, index: int = 0) -> Node:
    if x.dtype == "bool":
        raise low.build.unmatched("pools booleans")
    return low.build.node("pool", (low.build.materialise(x),), low.shapes[index], low.dtypes[index], pooling)


def _max_pool(rank: int, with_places: bool) -> Rule:
    def max_pool(
        low: Lowering,
        x: Node,
        kernel_size: Sizes,
        stride: Sizes = (),
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> Lowered:
        spans = _spans(rank, kernel_size, stride, padding, dilation, ceil_mode)
        largest = _pooled(low, x, Pooling("max", spans))
        return (largest, _pooled(low, x, Pooling("argmax", spans), 1)) if with_places else largest

    return max_pool


def _avg_pool(rank: int) -> Rule:
    def avg_pool(
        low: Lowering,
        x: Node,
        kernel_size: Sizes,
        stride: Sizes = (),
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Node:
        spans = _spans(rank, kernel_size, stride, padding, 1, ceil_mode)
        return _mean(low, x, Pooling("mean", spans, count_include_pad, divisor_override or 0))

    return avg_pool


def _mean(low: Lowering, x: Node, pooling: Pooling) -> Node:
    if not is_float(x.dtype):
        raise low.build.unmatched("is a mean of integers")
    return _pooled(low, x, pooling)


def _adaptive(operation: str) -> Rule:
    def adaptive(low: Lowering, x: Node, output_size: Sizes) -> Any:
        rank = len([output_size] if isinstance(output_size, int) else output_size)
        counts = low.shapes[0][-rank:]
        spans = tuple(map(Share, counts))
        if operation == "mean":
            if all(count == 1 for count in counts):
                dims = range(len(x.shape) - rank, len(x.shape))
                return low.build.reduce("mean", low.operand(x), dims, low.dtype)
            return _mean(low, x, Pooling("mean", spans))
        return _pooled(low, x, Pooling("max", spans)), _pooled(low, x, Pooling("argmax", spans), 1)

    return adaptive


def _sampled(taps: int, centred: bool = False) -> Rule:
    """Interpolation of `taps` elements a dimension; sizes or scales, and align_corners unless the nearest is taken."""

    def sampled(low: Lowering, x: Node, output_size: Sizes | None, *rest: Any) -> Node:
        aligned, given = (False, rest) if taps == 1 else (bool(rest[0]), rest[1:])
        rank = len(low.shapes[0]) - 2
        scales = list(given[0]) if given and isinstance(given[0], (list, tuple)) else list(given)
        if not is_float(x.dtype) or any(isinstance(scale, TracedFloat) for scale in scales):
            raise low.build.unmatched("interpolates integers, or by a scale that is an argument")
        factors = [0.0] * rank if not any(scales) else [float(scale or 0.0) for scale in scales]
        counts = low.shapes[0][-rank:] if output_size is not None else [0] * rank
        spans = (Samples(taps, aligned, n, scale, centred) for n, scale in zip(counts, factors, strict=True))
        return _pooled(low, x, Pooling("sample", tuple(spans)))

    return sampled


for _rank, _linear in ((1, "linear"), (2, "bilinear"), (3, "trilinear")):
    lowers(f"upsample_nearest{_rank}d")(_sampled(1))
    lowers(f"_upsample_nearest_exact{_rank}d")(_sampled(1, centred=True))
    lowers(f"upsample_{_linear}{_rank}d")(_sampled(2))
lowers("upsample_bicubic2d")(_sampled(4))
for _rank in (1, 2, 3):
    lowers(f"max_pool{_rank}d")(_max_pool(_rank, with_places=False))
    lowers(f"max_pool{_rank}d_with_indices")(_max_pool(_rank, with_places=True))
    lowers(f"avg_pool{_rank}d")(_avg_pool(_rank))
    lowers(f"adaptive_avg_pool{_rank}d", f"_adaptive_avg_pool{_rank}d")(_adaptive("mean"))
    lowers(f"adaptive_max_pool{_rank}d")(_adaptive("max"))
