"""What PyTorch's GPU kernels give where its CPU kernels differ: expected values by what GridSampler.cuh computes."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from cutesmith.judge.reference_side.gpu_values import as_on_a_gpu

IMAGE = torch.arange(1.0, 17.0).view(1, 1, 4, 4)  # row 2 holds 9, 10, 11, 12
LOW = 0.25  # the coordinate of row 2
sample = as_on_a_gpu(F.grid_sample)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize(
    ("padding", "coordinate", "expected"),
    [
        ("zeros", math.nan, 0.0),  # -100 after `safe_downgrade_to_int_range`
        ("zeros", math.inf, 0.0),
        ("zeros", -math.inf, 0.0),
        ("zeros", 3e38, 0.0),  # times the size it is infinite
        ("border", math.nan, 9.0),  # fmax(NaN, 0) is 0
        ("border", math.inf, 12.0),
        ("border", -math.inf, 9.0),
        ("reflection", math.nan, 9.0),
        ("reflection", math.inf, 9.0),  # fmod(Inf, size) is NaN
        ("reflection", 3e38, 9.0),
    ],
)
def test_points_that_are_not_finite_are_where_the_gpu_kernel_puts_them(mode, rank, padding, coordinate, expected):
    image = IMAGE if rank == 2 else IMAGE.unsqueeze(2)
    point = torch.tensor([coordinate, LOW, 0.0][:rank]).view(1, *[1] * rank, rank)
    for dtype in (torch.float32, torch.float64) if abs(coordinate) != 3e38 else (torch.float32,):
        got = sample(image.to(dtype), point.to(dtype), mode, padding, align_corners=False)
        assert got.dtype is dtype and got.tolist() == torch.full_like(got, expected).tolist()


def test_other_points_and_images_are_untouched():
    draw = torch.Generator().manual_seed(0)
    image, grid = torch.randn(2, 3, 5, 6, generator=draw), 1.5 * torch.randn(2, 4, 7, 2, generator=draw)
    image[0, 0, 1, 2] = math.nan
    for padding in ("zeros", "border", "reflection"):
        for mode in ("bilinear", "nearest", "bicubic"):
            own = F.grid_sample(image, grid, mode, padding, align_corners=True)
            torch.testing.assert_close(
                sample(image, grid, mode, padding, align_corners=True), own, rtol=0, atol=0, equal_nan=True
            )


def test_cudnn_gives_nan_where_it_samples_and_pytorch_s_own_kernel_nothing():
    """As measured on an H100."""
    point = torch.tensor([math.nan, LOW]).view(1, 1, 1, 2)
    assert sample(IMAGE, point, align_corners=True).isnan().all()
    assert not sample(IMAGE, point, mode="nearest", align_corners=True).any()
    assert not sample(IMAGE.expand(1, 1025, 4, 4), point, align_corners=True).any()


def test_a_point_with_one_coordinate_that_is_nan_leaves_its_neighbours_alone():
    grid = torch.zeros(1, 1, 3, 2)
    grid[0, 0, 1, 0] = math.nan
    got = sample(IMAGE, grid, align_corners=False)
    assert got.flatten().tolist() == [8.5, 0.0, 8.5]


@pytest.mark.parametrize("keys", [1, 4, 20])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_attention_gives_nan_for_a_score_that_is_nan_however_few_keys_there_are(dtype, keys):
    query, key, value = (torch.randn(1, 1, rows, 16, dtype=dtype) for rows in (2, keys, keys))
    query[0, 0, 0, 3] = torch.nan
    attention = as_on_a_gpu(F.scaled_dot_product_attention)
    out = attention(query, key, value)
    assert out[0, 0, 0].isnan().all() and out[0, 0, 1].isfinite().all()


def test_a_score_of_a_later_key_reaches_no_causal_row():
    query, key, value = (torch.randn(1, 1, 20, 16) for _ in range(3))
    key[0, 0, 19] = torch.nan
    out = as_on_a_gpu(F.scaled_dot_product_attention)(query, key, value, is_causal=True)
    assert out[0, 0, :19].isfinite().all() and out[0, 0, 19].isnan().all()
