"""Cases of `bench_patterns.py`: a block of Llama, and parts of blocks that take a launch or two."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812
from pattern_cases import Case, half
from races import Function, Tensor

Values = torch.Tensor
WIDE, GATES = 4096, 14336


def rotated(x: Values, cos: Values, sin: Values) -> Values:
    """A rotary embedding of heads (batch, heads, tokens, channels)."""
    low, high = x.chunk(2, -1)
    return x * cos.unsqueeze(1) + torch.cat((-high, low), -1) * sin.unsqueeze(1)


def heads(x: Values) -> Values:
    """(batch, heads, tokens, 128) of (batch, tokens, channels)."""
    return x.view(*x.shape[:-1], -1, 128).transpose(1, 2)


def normed_and_rotated(x: Values, w: Values, norm: Values, cos: Values, sin: Values) -> Values:
    """Queries as Qwen 3 has them."""
    normed = F.rms_norm(F.linear(x, w).view(*x.shape[:-1], -1, 128), norm.shape, norm, 1e-6).transpose(1, 2)
    return rotated(normed, cos, sin)


def gate_of_halves(x: Values, w: Values) -> Values:
    """SwiGLU whose two weights are one matrix."""
    gate, up = F.linear(x, w).chunk(2, -1)
    return F.silu(gate) * up


def residual_and_norm(x: Values, w: Values, residual: Values, norm: Values) -> tuple[Values, Values]:
    """What goes on, and what the next layer reads."""
    x = F.linear(x, w) + residual
    return x, F.rms_norm(x, norm.shape, norm)


def block(x: Values, *weights: Values) -> Values:
    """A block of Llama 3.1 8B, without a cache: 32 heads of queries and 8 of keys."""
    norm, of_q, of_k, of_v, of_o, second_norm, of_gates, of_down, cos, sin = weights
    h = F.rms_norm(x, norm.shape, norm)
    q, k, v = (heads(F.linear(h, w)) for w in (of_q, of_k, of_v))
    q, k = rotated(q, cos, sin), rotated(k, cos, sin)
    seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    x = x + F.linear(seen.transpose(1, 2).flatten(2), of_o)
    return x + F.linear(gate_of_halves(F.rms_norm(x, second_norm.shape, second_norm), of_gates), of_down)


def long_convolution(x: Values, filters: Values) -> Values:
    """A causal filter as long as the sequence, by Fourier transforms."""
    size = 2 * x.shape[-1]
    product = torch.fft.rfft(x.float(), n=size) * torch.fft.rfft(filters.float(), n=size)
    return torch.fft.irfft(product, n=size)[..., : x.shape[-1]]


def correlation(x: Values, y: Values) -> Values:
    """The circular correlation of pairs of lines."""
    return torch.fft.ifft(torch.fft.fft(x.float()).conj() * torch.fft.fft(y.float())).real


def blocks() -> Iterator[Case]:
    """Blocks of 2048 tokens in one sequence and four, and of one token of 8 sequences; their parts."""
    narrow = _weight(1024, WIDE)
    for batch, tokens in ((1, 2048), (4, 512), (8, 1)):
        x, turns = Tensor((batch, tokens, WIDE)), Tensor((batch, tokens, 128))
        weights = (Tensor((WIDE,)), _weight(WIDE, WIDE), narrow, narrow, _weight(WIDE, WIDE), Tensor((WIDE,)))
        gated = (_weight(2 * GATES, WIDE), _weight(WIDE, GATES))
        yield _case(f"block of {batch} x {tokens} tokens", block, x, *weights, *gated, turns, turns)
    for batch, tokens in ((1, 8192), (8, 1)):
        turns, norm = Tensor((batch, tokens, 128)), Tensor((128,))
        x = Tensor((batch, tokens, WIDE))
        yield _case(f"queries of {batch} x {tokens}", normed_and_rotated, x, _weight(WIDE, WIDE), norm, turns, turns)
    x = Tensor((1, 8192, WIDE))
    yield _case("one sequence and a residual", lambda x, w, r: F.linear(x, w) + r, x, _weight(WIDE, WIDE), x)
    for tokens in (2048, 8192):
        yield _case(f"gate of halves, {tokens}", gate_of_halves, Tensor((tokens, WIDE)), _weight(2 * GATES, WIDE))
    x = Tensor((4096, WIDE))
    yield _case("residual and norm", residual_and_norm, x, _weight(WIDE, WIDE), x, Tensor((WIDE,)))
    yield _case("long convolution", long_convolution, Tensor((8, 512, 1024)), Tensor((512, 1024)))
    yield _case("correlation", correlation, Tensor((4096, 1024)), Tensor((4096, 1024)))


def _weight(rows: int, columns: int) -> Tensor:
    return Tensor((rows, columns), half, columns**-0.5)


def _case(name: str, function: Function, *arguments: Tensor) -> Case:
    return Case(name, function, arguments, 2, compiled="default", tolerance=2e-2)
