"""Cases of `bench_patterns.py`: convolutions of KernelBench, ResNet, ConvNeXt and MobileNet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from pattern_cases import TF32_ERROR, Case, half, single
from races import Function, Tensor

FEW_TAPS = 64
"""So many products for each result wait for memory: what they move is counted, not their operations."""


IMAGES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3x3, 64 channels, 56 x 56": ((32, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
    "3x3, 256 channels, 14 x 14": ((32, 256, 14, 14), (256, 256, 3, 3), {"padding": 1}),
    "1x1, 64 to 256 channels, 56 x 56": ((32, 64, 56, 56), (256, 64, 1, 1), {}),
    "7x7, stride 2, 3 to 64 channels, 224 x 224": ((32, 3, 224, 224), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
    "3x3 in 4 groups, 256 channels, 56 x 56": ((32, 256, 56, 56), (256, 64, 3, 3), {"padding": 1, "groups": 4}),
    "3x3 in 8 groups, 512 channels, 28 x 28": ((32, 512, 28, 28), (512, 64, 3, 3), {"padding": 1, "groups": 8}),
    "3x3 in 32 groups, 1024 channels, 14 x 14": ((32, 1024, 14, 14), (1024, 32, 3, 3), {"padding": 1, "groups": 32}),
    "7x7 depthwise, 96 channels, 56 x 56": ((32, 96, 56, 56), (96, 1, 7, 7), {"padding": 3, "groups": 96}),
    "3x3 depthwise, 64 channels, 512 x 512": ((16, 64, 512, 512), (64, 1, 3, 3), {"padding": 1, "groups": 64}),
    "3x3x3, 32 to 64 channels, 16 x 64 x 64": ((8, 32, 16, 64, 64), (64, 32, 3, 3, 3), {"padding": 1}),
}


def convolutions() -> Iterator[Case]:
    """Convolution and ReLU; cuDNN may round float32 to tf32, as PyTorch lets it, and the kernels do not."""
    for dtype in (single, half):
        for name, (image, weights, options) in IMAGES.items():
            convolve: Function = F.conv2d if len(image) == 4 else F.conv3d

            def function(
                x: torch.Tensor, w: torch.Tensor, convolve: Function = convolve, o: Any = options
            ) -> torch.Tensor:
                return F.relu(convolve(x, w, **o))  # type: ignore[no-any-return]

            def exact(x: torch.Tensor, w: torch.Tensor, function: Function = function) -> tuple[Any, torch.Tensor]:
                return (slice(0, 2),), function(x[:2].double(), w.double())

            scale = torch.Size(weights[1:]).numel() ** -0.5
            tensors = Tensor(image, dtype), Tensor(weights, dtype, scale)
            yield Case(f"{name}, {str(dtype)[6:]}", function, tensors, 2, moved=2 * tensors[0].bytes, exact=exact)


def _convolution(
    name: str, image: tuple[int, ...], weights: tuple[int, ...], dtype: torch.dtype, last: bool = False, **options: int
) -> Case:
    """With bias and ReLU; the first two images of the result are compared."""
    convolve: Function = F.conv2d if len(image) == 4 else F.conv3d

    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.relu(convolve(x, w, b, **options))

    def exact(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[Any, torch.Tensor]:
        return (slice(0, 2),), function(x[:2].double(), w.double(), b.double())

    depth = torch.Size(weights[1:]).numel()
    tensors = (
        Tensor(image, dtype, channels_last=last),
        Tensor(weights, dtype, depth**-0.5, channels_last=last),
        Tensor((weights[0],), dtype),
    )
    step, padding = options.get("stride", 1), options.get("padding", 0)
    sizes = [(size + 2 * padding - taps) // step + 1 for size, taps in zip(image[2:], weights[2:], strict=True)]
    results = image[0] * weights[0] * torch.Size(sizes).numel()
    what = f"{name}, {image[1]} to {weights[0]} channels, {' x '.join(map(str, image[2:]))}"
    layout = "channels last, " if last else ""
    flops = 2 * results * depth if depth > FEW_TAPS else 0
    moved = 0 if flops else tensors[0].bytes + results * dtype.itemsize
    return Case(f"{what}, {layout}{str(dtype)[6:]}", function, tensors, 2, flops, moved, exact=exact)


RESNET = (
    (64, 256, 56),
    (256, 64, 56),
    (512, 128, 28),
    (128, 512, 28),
    (1024, 256, 14),
    (256, 1024, 14),
    (2048, 512, 7),
)


def points() -> Iterator[Case]:
    """1 x 1 convolutions of ResNet-50 with bias and ReLU, 32 images."""
    for dtype in (half, single):
        for channels, outputs, size in RESNET:
            yield _convolution("1x1", (32, channels, size, size), (outputs, channels, 1, 1), dtype)


def taps() -> Iterator[Case]:
    """3 x 3 convolutions of ResNet-50 with bias and ReLU, and one of 256 channels on a large image."""
    for last in (False, True):
        for channels, size in ((64, 56), (128, 28), (256, 14), (512, 7), (256, 56)):
            image, weights = (32, channels, size, size), (channels, channels, 3, 3)
            yield _convolution("3x3", image, weights, half, last, padding=1)


def images() -> Iterator[Case]:
    """Other convolutions of ResNet and ConvNeXt: steps of 2 and 4, few channels, and three dimensions."""
    found: tuple[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, int]], ...] = (
        ("7x7 by 2", (32, 3, 224, 224), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
        ("3x3 by 2", (32, 128, 56, 56), (128, 128, 3, 3), {"padding": 1, "stride": 2}),
        ("3x3 by 2", (32, 512, 14, 14), (512, 512, 3, 3), {"padding": 1, "stride": 2}),
        ("1x1 by 2", (32, 512, 28, 28), (1024, 512, 1, 1), {"stride": 2}),
        ("4x4 by 4", (32, 3, 224, 224), (96, 3, 4, 4), {"stride": 4}),
        ("2x2 by 2", (32, 192, 28, 28), (384, 192, 2, 2), {"stride": 2}),
        ("3x3x3", (8, 32, 16, 64, 64), (64, 32, 3, 3, 3), {"padding": 1}),
        ("3x3x3", (4, 128, 8, 28, 28), (128, 128, 3, 3, 3), {"padding": 1}),
        ("3x3x3", (16, 16, 16, 32, 32), (32, 16, 3, 3, 3), {"padding": 1}),
        ("3x3", (16, 16, 256, 256), (32, 16, 3, 3), {"padding": 1}),
    )
    for name, image, weights, options in found:
        yield _convolution(name, image, weights, half, **options)


TF32_IMAGES: tuple[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, int]], ...] = (
    ("1/50, 11x11 by 4", (256, 3, 224, 224), (96, 3, 11, 11), {"padding": 2, "stride": 4}),
    ("1/55, 3x3", (8, 64, 512, 1024), (128, 64, 3, 3), {}),
    ("1/56, 5x7", (8, 64, 512, 256), (128, 64, 5, 7), {}),
    ("1/62, 5x9", (8, 32, 512, 512), (64, 32, 5, 9), {}),
    ("1/63, 3x3", (16, 16, 1024, 1024), (128, 16, 3, 3), {}),
    ("3x3", (32, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
    ("3x3", (32, 256, 14, 14), (256, 256, 3, 3), {"padding": 1}),
    ("3x3", (32, 512, 7, 7), (512, 512, 3, 3), {"padding": 1}),
    ("1x1", (32, 64, 56, 56), (256, 64, 1, 1), {}),
    ("1x1", (32, 1024, 14, 14), (256, 1024, 1, 1), {}),
)


def tf32_images() -> Iterator[Case]:
    """Convolutions of KernelBench's level 1 and of ResNet-50, whose factors may be rounded to tf32."""
    for name, image, weights, options in TF32_IMAGES:
        case = _convolution(name, image, weights, single, **options)
        yield replace(case, configurations=3, tolerance=TF32_ERROR, tf32=True)


def depthwise() -> Iterator[Case]:
    """Depthwise convolutions of ConvNeXt, in both layouts, and of MobileNet."""
    for channels, size in ((96, 56), (192, 28), (384, 14), (768, 7)):
        for last in (False, True) if size > 14 else (False,):
            image, weights = (32, channels, size, size), (channels, 1, 7, 7)
            yield _convolution("7x7 depthwise", image, weights, half, last, padding=3, groups=channels)
    for channels, size, step, dtype in ((64, 112, 1, half), (128, 112, 2, half), (64, 512, 1, single)):
        image, weights = (16, channels, size, size), (channels, 1, 3, 3)
        yield _convolution("3x3 depthwise", image, weights, dtype, padding=1, groups=channels, stride=step)
