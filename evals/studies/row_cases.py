"""Cases of `bench_patterns.py` whose products' rows are reduced: routers, classifiers, norms of projections."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812
from pattern_cases import Case, single
from races import Function, Tensor

Values = torch.Tensor


def router(x: Values, w: Values) -> Values:
    """Probabilities of experts."""
    return torch.softmax(F.linear(x, w), -1, dtype=torch.float32)


def shares(x: Values, w: Values, b: Values) -> Values:
    """Sigmoids over their sum."""
    scores = torch.sigmoid(F.linear(x, w).float()) + b
    return scores / scores.sum(-1, keepdim=True)


def logsumexp(x: Values, w: Values) -> Values:
    """Of the logits alone."""
    return torch.logsumexp(F.linear(x, w).float(), -1)


def router_with_logsumexp(x: Values, w: Values) -> tuple[Values, Values]:
    """Probabilities, and what the loss of a router takes."""
    logits = F.linear(x, w).float()
    return logits.softmax(-1), torch.logsumexp(logits, -1)


def losses(x: Values, w: Values, labels: Values) -> Values:
    """A cross entropy for each row."""
    return F.cross_entropy(F.linear(x, w).float(), labels, reduction="none")


def rms_norm(x: Values, w: Values, g: Values) -> Values:
    """Of a projection."""
    return F.rms_norm(F.linear(x, w), g.shape, g, 1e-6)


def rms_norm_and_scale(x: Values, w: Values, g: Values) -> tuple[Values, Values]:
    """Of a projection, and what its rows were multiplied by."""
    hidden = F.linear(x, w).float()
    inverse = torch.rsqrt(hidden.square().mean(-1, keepdim=True) + 1e-6)
    return (hidden * inverse).to(x.dtype) * g, inverse


def norms_of_heads(x: Values, w: Values, g: Values) -> Values:
    """RMS norms of heads that lie side by side in a projection."""
    return F.rms_norm(F.linear(x, w).unflatten(-1, (-1, g.shape[0])), g.shape, g, 1e-6)


def attention_weights(q: Values, k: Values) -> Values:
    """Softmax of scores."""
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)


def _case(name: str, function: Function, sizes: tuple[int, int, int], *others: Tensor) -> Case:
    rows, k, columns = sizes
    factors = Tensor((rows, k)), Tensor((columns, k), scale=k**-0.5)
    return Case(name, function, (*factors, *others), 3, compiled="default", tolerance=2e-2)


def row_values() -> Iterator[Case]:
    """Products of up to 256 columns, which one launch may reduce, and norms of heads, which takes two."""
    for columns in (64, 128, 256):
        yield _case(f"router of {columns}", router, (8192, 4096, columns))
    yield _case("shares of 64 experts", shares, (8192, 4096, 64), Tensor((64,), single))
    yield _case("log-sum-exp of 128", logsumexp, (8192, 4096, 128))
    yield _case("log-sum-exp of few rows", logsumexp, (64, 4096, 128))
    yield _case("router of 128 with log-sum-exp", router_with_logsumexp, (8192, 4096, 128))
    yield _case("losses of 64 classes", losses, (8192, 4096, 64), Tensor((8192,), torch.int64, below=64))
    yield _case("RMS norm of 128", rms_norm, (16384, 2048, 128), Tensor((128,)))
    yield _case("RMS norm of 256 with its scale", rms_norm_and_scale, (16384, 1024, 256), Tensor((256,)))
    yield _case("norms of 32 heads of 128", norms_of_heads, (8192, 4096, 4096), Tensor((128,)))
    scores = Tensor((256, 256, 64)), Tensor((256, 256, 64))
    yield Case("softmaxes of 256 x 256 scores", attention_weights, scores, 3, compiled="default", tolerance=2e-2)


PARTS = (row_values,)
