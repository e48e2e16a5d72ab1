"""PyTorch's own attention, lowered as its definition says: softmax(scale Q K^T + mask) V in float32, rounded once."""

from __future__ import annotations

from cutesmith.patterns.graph.attributes import Number
from cutesmith.patterns.graph.contractions import contract
from cutesmith.patterns.graph.dtypes import compute_dtype
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.views import push_permute
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, lowers
from cutesmith.patterns.tracing.lowering.normalizations import safe_softmax

NEGATIVE_INFINITY = float("-inf")


@lowers("scaled_dot_product_attention")
def _attention(
    low: Lowering,
    q: Node,
    k: Node,
    v: Node,
    attn_mask: Node | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: Number | None = None,
    enable_gqa: bool = False,
) -> Node:
    """The weights are rounded to the dtype of the values before the second product, as in every fused kernel."""
    build = low.build
    if dropout_p:
        raise build.unmatched("draws random numbers")
    groups = q.shape[-3] // k.shape[-3] if enable_gqa else 1
    if groups > 1:
        k, v = _grouped(low, k, v)
        q = build.reshape(q, (*q.shape[:-3], k.shape[-4], groups, *q.shape[-2:]))
        attn_mask = _mask_by_group(low, attn_mask, k.shape[-4], groups)
    wide = compute_dtype(q.dtype)
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    order = [*range(len(k.shape) - 2), len(k.shape) - 1, len(k.shape) - 2]
    products = contract(build, q, push_permute(build, k, order), wide)
    scores = build("mul", products, low.operand(factor, wide))
    scores = _masked(low, scores, attn_mask, is_causal)
    weights = build.retype(safe_softmax(build, scores, wide), v.dtype)
    return build.reshape(contract(build, weights, v, low.dtype), tuple(low.shapes[0]))


def _grouped(low: Lowering, *heads: Node) -> list[Node]:
    """Keys and values with a dimension of size 1 that all queries of a group share."""
    return [low.build.reshape(x, (*x.shape[:-2], 1, *x.shape[-2:])) for x in heads]


def _mask_by_group(low: Lowering, mask: Node | None, heads: int, groups: int) -> Node | None:
    """A mask over all heads as one over heads and groups."""
    if mask is None or len(mask.shape) < 3:
        return mask
    split = (heads, groups) if mask.shape[-3] == heads * groups else (1, 1)
    return low.build.reshape(mask, (*mask.shape[:-3], *split, *mask.shape[-2:]))


def _masked(low: Lowering, scores: Node, mask: Node | None, causal: bool) -> Node:
    """A mask is added, so that a score of Inf or NaN beneath it shows; a causal one selects, as in fused kernels."""
    build, (queries, keys) = low.build, scores.shape[-2:]
    if causal:
        seen = build("le", build.iota((1, keys), 1), build.iota((queries, 1), 0))
        scores = build("where", seen, scores, NEGATIVE_INFINITY)
    if mask is None:
        return scores
    if mask.dtype == "bool":
        mask = build("where", mask, 0.0, NEGATIVE_INFINITY, dtype=scores.dtype)
    return build("add", scores, low.operand(mask, scores.dtype))
