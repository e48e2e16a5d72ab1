"""The stand-in for block-scaled `torch._scaled_mm`, against sums written out."""

from __future__ import annotations

import pytest
import torch

from cutesmith.profiling.scripts.scaled_products import with_block_scales, with_out_dtype

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def refuse(*args, **named):
    raise NotImplementedError


def tiled(scales):
    """(rows, blocks) as cuBLAS wants them: byte 16 (row % 32) + 4 (row / 32 % 4) + block % 4 of a tile of 512."""
    rows, blocks = scales.shape
    across, along = -(-rows // 128), -(-blocks // 4)
    flat = torch.zeros(across * along * 512, dtype=scales.dtype)
    for row in range(rows):
        for block in range(blocks):
            tile = row // 128 * along + block // 4
            flat[tile * 512 + row % 32 * 16 + row // 32 % 4 * 4 + block % 4] = scales[row, block]
    return flat


@pytest.mark.parametrize("dtype", ["e2m1", "e4m3"])
def test_blocks_of_scale_factors(dtype):
    generator = torch.Generator().manual_seed(3)
    m, n, k = 130, 40, 160
    size = 16 if dtype == "e2m1" else 32
    sides, numbers, scales = [], [], []
    for rows in (m, n):
        if dtype == "e2m1":
            codes = torch.randint(0, 16, (rows, k), generator=generator)
            values = torch.tensor([*E2M1, *(-one for one in E2M1)], dtype=torch.float64)[codes]
            packed = (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8).view(torch.float4_e2m1fn_x2)
            factors = torch.rand((rows, k // size), generator=generator).to(torch.float8_e4m3fn)
        else:
            packed = torch.randn((rows, k), generator=generator).to(torch.float8_e4m3fn)
            values = packed.double()
            factors = (2.0 ** torch.randint(-3, 4, (rows, k // size), generator=generator)).to(torch.float8_e8m0fnu)
        sides.append(packed)
        numbers.append(values * factors.float().double().repeat_interleave(size, dim=1))
        scales.append(tiled(factors))
    found = with_block_scales(refuse)(sides[0], sides[1].transpose(0, 1), *scales, out_dtype=torch.float32)
    torch.testing.assert_close(found.double(), numbers[0] @ numbers[1].T, rtol=1e-6, atol=1e-6)


def test_other_scales_are_pytorchs_own():
    one = torch.ones(())
    with pytest.raises(NotImplementedError):
        with_block_scales(refuse)(one, one, one, one)


def test_products_take_a_wider_type_of_their_result():
    a, b, c = (torch.randn(3, 8, 8, dtype=torch.bfloat16) for _ in range(3))
    exact = a.double() @ b.double()
    wide = torch.float32
    assert torch.equal(with_out_dtype(torch.bmm)(a, b, out_dtype=wide), exact.to(wide))
    assert torch.equal(with_out_dtype(torch.mm)(a[0], b[0], wide), exact[0].to(wide))
    added = with_out_dtype(torch.baddbmm)(c, a, b, out_dtype=wide, beta=0.5, alpha=2.0)
    assert torch.equal(added, (0.5 * c.double() + 2 * exact).to(wide))
    out = torch.empty(8, 8)
    assert with_out_dtype(torch.addmm)(c[0], a[0], b[0], out_dtype=wide, out=out) is out
    assert torch.equal(out, (c[0].double() + exact[0]).to(wide))
    assert torch.equal(with_out_dtype(torch.mm)(a[0], b[0]), a[0] @ b[0])
