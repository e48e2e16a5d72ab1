"""Cases of `bench_patterns.py` that wait for memory: reductions of columns, scans, pooling, transposes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812
from pattern_cases import Case, single
from races import Function, Tensor


def _case(name: str, function: Function, *tensors: Tensor, times: float = 1.0, configurations: int = 2) -> Case:
    """The bytes that it moves are those of its first argument, so many times."""
    moved = int(tensors[0].bytes * times)
    return Case(name, function, tensors, configurations, moved=moved, compiled="default")


def columns() -> Iterator[Case]:
    """Reductions over dimensions that are not the last one, and norms over such."""
    x, halves = Tensor((8192, 16384), single), Tensor((8192, 16384))
    yield _case("sum of columns", lambda x: x.sum(0), x)
    yield _case("sum of columns, bfloat16", lambda x: x.sum(0), halves)
    x = Tensor((64, 2048, 1024))
    yield _case("mean over the middle, bfloat16", lambda x: x.mean(1), x)
    yield _case("most of the middle, bfloat16", lambda x: x.amax(1), x)
    x, b = Tensor((32, 256, 64, 64), single), Tensor((256,), single)
    yield _case("softmax over channels", lambda x: x.softmax(1), x, times=2)
    yield _case("variance of channels", lambda x: x.var((0, 2, 3)), x)
    x = Tensor((32, 256, 56, 56), single)
    norm = lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True)  # noqa: E731
    yield _case("batch norm, training", norm, x, b, b, times=2)
    yield _case("group norm", lambda x, w, b: F.group_norm(x, 32, w, b), x, b, b, times=2)


def scans() -> Iterator[Case]:
    """Sums so far: along rows, columns and the middle, of long rows, backwards, products, logarithms."""
    x = Tensor((32768, 4096), single)
    yield _case("cumsum of rows", lambda x: x.cumsum(1), x, times=2)
    yield _case("cumsum of rows, backwards", lambda x: x.flip(1).cumsum(1).flip(1), x, times=2)
    yield _case("logcumsumexp of rows", lambda x: x.logcumsumexp(1), x, times=2)
    yield _case("cumsum of rows, bfloat16", lambda x: x.cumsum(1), Tensor((32768, 8192)), times=2)
    yield _case("cumsum of columns", lambda x: x.cumsum(0), Tensor((4096, 32768), single), times=2)
    yield _case("cumsum of the middle", lambda x: x.cumsum(1), Tensor((64, 1024, 1024), single), times=2)
    yield _case("cumsum of 16 long rows", lambda x: x.cumsum(1), Tensor((16, 4 << 20), single), times=2)
    row = Tensor((64 << 20,), single)
    yield _case("cumsum of one row", lambda x: x.cumsum(0), row, times=2)
    yield _case("logcumsumexp of one row", lambda x: x.logcumsumexp(0), row, times=2)
    yield _case("cummax of one row, with places", lambda x: tuple(x.cummax(0)), row, times=4)
    yield _case("cumsum of a row of float64", lambda x: x.cumsum(0), Tensor((32 << 20,), torch.float64), times=2)
    yield _case("cumsum of 100 long rows", lambda x: x.cumsum(1), Tensor((100, 1 << 20), single), times=2)


def pooling() -> Iterator[Case]:
    """Windows: the largest and the mean, in two and three dimensions and both layouts; larger images of an image."""
    x = Tensor((64, 64, 224, 224), single)
    yield _case("max pooling 3x3, stride 2", lambda x: F.max_pool2d(x, 3, 2, 1), x, times=1.25)
    yield _case("mean pooling 3x3, stride 2", lambda x: F.avg_pool2d(x, 3, 2, 1), x, times=1.25)
    last = Tensor((64, 64, 224, 224), channels_last=True)
    yield _case("max pooling 2x2, channels last, bfloat16", lambda x: F.max_pool2d(x, 2), last, times=1.25)
    x = Tensor((16, 32, 64, 128, 128), single)
    yield _case("max pooling 3x3x3, stride 2", lambda x: F.max_pool3d(x, 3, 2, 1), x, times=1.125)
    x = Tensor((64, 1024, 56, 56))
    yield _case("mean of each channel, bfloat16", lambda x: F.adaptive_avg_pool2d(x, 1), x)
    yield _case("means of 7 x 7 windows, bfloat16", lambda x: F.adaptive_avg_pool2d(x, 7), x, times=1 + 1 / 64)
    x = Tensor((16, 64, 128, 128), single)
    yield _case("bilinear, twice the size", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), x, times=5)
    yield _case("nearest, twice the size", lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), x, times=5)


def moves() -> Iterator[Case]:
    """Transposes and permutations, alone and beside pointwise work, and rows put together."""
    yield _case("transpose, bfloat16", lambda x: x.t().contiguous(), Tensor((16384, 8192)), times=2, configurations=4)
    x = Tensor((8192, 8192), single)
    yield _case("transpose, float32", lambda x: x.t().contiguous(), x, times=2, configurations=4)
    yield _case("relu(x.t() + y)", lambda x, y: torch.relu(x.t() + y), x, x, times=3, configurations=4)
    x = Tensor((64, 256, 56, 56))
    last = lambda x: x.permute(0, 2, 3, 1).contiguous()  # noqa: E731
    yield _case("channels last, bfloat16", last, x, times=2, configurations=4)
    first = lambda x: x.permute(0, 3, 1, 2).contiguous()  # noqa: E731
    yield _case("channels first, bfloat16", first, Tensor((64, 56, 56, 256)), times=2, configurations=4)
    heads = lambda x: x.transpose(1, 2).contiguous()  # noqa: E731
    yield _case("heads first, bfloat16", heads, Tensor((16, 4096, 16, 128)), times=2)
    x, y = Tensor((8192, 8192), single), Tensor((8192, 4096), single)
    yield _case("cat of rows", lambda x, y: torch.cat([x, y], 1), x, y, times=3)
    yield _case("rows backwards", lambda x: x.flip(1), x, times=2)
