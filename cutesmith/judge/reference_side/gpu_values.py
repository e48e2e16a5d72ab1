"""The values of PyTorch's GPU kernels, computed on a CPU, where those of its CPU kernels are others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

CUDNN_CHANNELS = 1024  # of an image, at most (cond_cudnn_grid_sampler in ATen/native/GridSamplerUtils.h)


def as_on_a_gpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose calls of torch on CPU tensors give what they give on a GPU."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        with OfAGpu():
            return function(*arguments, **named)

    return call


class OfAGpu(TorchFunctionMode):  # type: ignore[misc,no-untyped-call,unused-ignore]
    """Within it, `grid_sample` treats coordinates that are not finite as PyTorch's GPU kernel does.

    Attention to all keys gives NaN where a score is NaN: PyTorch's fused CPU kernel gives 0 for fewer keys than it has
    in a vector (8 of float64, 16 of float32), and NaN for more. Masked attention stays with that kernel: the other one
    adds -Inf to later keys of causal attention, which leaves a NaN there, where fused kernels put -Inf in its place.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is F.grid_sample:
            return _grid_sample(*args, **(kwargs or {}))
        if func is F.scaled_dot_product_attention and _attends_to_all(*args, **(kwargs or {})):
            with sdpa_kernel(SDPBackend.MATH):
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _attends_to_all(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **others: Any,
) -> bool:
    return attn_mask is None and not is_causal


def _grid_sample(
    image: torch.Tensor,
    grid: torch.Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> torch.Tensor:
    """A point with such a coordinate lies outside of the image, or in its first column where there is no outside.

    PyTorch's CPU kernels multiply what is outside by weights of NaN; on a GPU `safe_downgrade_to_int_range` and
    `fmax` in `clip_coordinates` move the point first (ATen/native/cuda/GridSampler.cuh). Cubic weights are NaN on both,
    and so are those of cuDNN, which samples images with zeros around and aligned corners.
    """
    by_cudnn = (mode, padding_mode, align_corners, image.dim()) == ("bilinear", "zeros", True, 4)
    if mode == "bicubic" or (by_cudnn and image.shape[1] <= CUDNN_CHANNELS):
        return F.grid_sample(image, grid, mode, padding_mode, align_corners)
    sizes = grid.new_tensor(image.shape[:1:-1])
    places = (grid + 1) / 2 * (sizes - 1) if align_corners else ((grid + 1) * sizes - 1) / 2
    lost = places.isnan() if padding_mode == "border" else ~places.isfinite()
    if padding_mode != "zeros":
        return F.grid_sample(image, grid.masked_fill(lost, -1.0), mode, padding_mode, align_corners)
    sampled = F.grid_sample(image, grid.masked_fill(lost, 0.0), mode, padding_mode, align_corners)
    return sampled.masked_fill(lost.any(-1).unsqueeze(1), 0.0)
