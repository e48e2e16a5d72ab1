"""Products that PyTorch has for GPUs alone: `_scaled_mm` with blocks of scale factors, `mm` with an `out_dtype`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_ROWS, _COLUMNS = 128, 4  # scale factors that lie together


def with_block_scales(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch._scaled_mm` that also takes blocks of scale factors; products are exact, rounded once to `out_dtype`."""

    def scaled_mm(a: Any, b: Any, scale_a: Any, scale_b: Any, *args: Any, **named: Any) -> Any:
        if scale_a.dtype not in (torch.float8_e4m3fn, torch.float8_e8m0fnu):
            return original(a, b, scale_a, scale_b, *args, **named)
        left, right = _numbers(a), _numbers(b.transpose(0, 1))
        scaled = [_scaled(part, scale) for part, scale in ((left, scale_a), (right, scale_b))]
        result = scaled[0] @ scaled[1].transpose(0, 1)
        if (bias := named.get("bias")) is not None:
            result = result + bias.double()
        return result.to(named.get("out_dtype") or torch.bfloat16)

    return scaled_mm


def with_out_dtype(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.mm` or its like that also takes an `out_dtype`; products are exact, rounded once to that."""

    @functools.wraps(original)
    def product(*given: Any, out_dtype: Any = None, out: Any = None, **named: Any) -> Any:
        asked = next((value for value in given if isinstance(value, torch.dtype)), out_dtype)
        if asked is None:
            return original(*given, **named) if out is None else original(*given, out=out, **named)
        wide = [value.double() for value in given if isinstance(value, torch.Tensor)]
        result = original(*wide, **named).to(asked)
        return result if out is None else out.copy_(result)

    return product


def _numbers(matrix: Any) -> Any:
    """float64 (rows, k); the lower four bits of a byte come first."""
    if matrix.dtype != torch.float4_e2m1fn_x2:
        return matrix.float().double()
    table = torch.tensor([*_E2M1, *(-value for value in _E2M1)], dtype=torch.float64, device=matrix.device)
    pairs = matrix.contiguous().view(torch.uint8).long()
    return torch.stack([table[pairs & 15], table[pairs >> 4]], dim=-1).reshape(len(pairs), -1)


def _scaled(numbers: Any, factors: Any) -> Any:
    """Numbers times their factors, which lie in tiles of 128 rows x 4 blocks, rows 32 apart side by side (cuBLAS)."""
    rows, depth = numbers.shape
    across = -(-rows // _ROWS)
    tiles = factors.float().double().reshape(across, -1, 32, _ROWS // 32, _COLUMNS).transpose(2, 3)
    matrix = tiles.reshape(across, -1, _ROWS, _COLUMNS).permute(0, 2, 1, 3).reshape(across * _ROWS, -1)
    size = 16 if factors.dtype == torch.float8_e4m3fn else 32
    kept = matrix[:rows, : -(-depth // size)]
    return numbers * kept.repeat_interleave(size, dim=1)[:, :depth]
