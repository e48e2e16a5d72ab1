"""Attention and its gradients with or without the products of keys that a mask rules out.

A mask makes scores -Inf, the softmax makes them weights of exactly 0, and PyTorch multiplies these with the values:
one value of Inf or NaN that no query may see gives NaN then. A kernel that skips masked keys, as every one does that
knows its mask, gives the result without them. Gradients have such weights from exponentials, and multiply them further.
So are weights that are subnormal in float32: a GPU may flush them to 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from cutesmith.judge.reference_side.tolerance import FLUSHED

_SUMS = frozenset({"add", "add_", "__add__", "__radd__", "__iadd__"})
_PRODUCTS = frozenset({"matmul", "__matmul__", "bmm", "einsum"})
_BY_ELEMENT = frozenset({"mul", "__mul__", "__rmul__"})
_EXPONENTIALS = frozenset({"exp", "exp2"})
_FILLS = frozenset({"masked_fill", "masked_fill_", "where"})


class ByMaskedKeys(TorchFunctionMode):  # type: ignore[misc,no-untyped-call,unused-ignore]
    """Within it, weights of 0 that scores of -Inf were given are multiplied with values, or leave them out.

    `replaced` counts the softmaxes that saw such scores, and the exponentials after the function filled in -Inf itself:
    else -Inf is an input like any other. Without the products a mask of -Inf also wins over the score that it is added
    to. Weights that float32 may flush are 0 where they are multiplied, else what they are.
    """

    def __init__(self, *, multiplies: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.multiplies, self.replaced = multiplies, 0
        self._shapes: set[torch.Size] = set()  # of weights with such zeros
        self._fills = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, named = getattr(func, "__name__", ""), dict(kwargs or {})
        if name in _FILLS:
            self._fills |= any(map(_is_lowest, (*args, *named.values())))
        if name == "softmax" or (name in _EXPONENTIALS and self._fills):
            return self._weighed(func, *args, **named)
        if name == "scaled_dot_product_attention":
            return self._attention(*args, **named)
        if self.multiplies:
            return func(*args, **named)
        if name in _SUMS and len(args) == 2:
            return _masked_sum(func, *args, **named)
        if name in _BY_ELEMENT and len(args) == 2:
            return self._scaled(func, *args)
        if name in _PRODUCTS and not named:
            return self._product(func, args)
        return func(*args, **named)

    def _weighed(self, func: Callable[..., torch.Tensor], *args: Any, **named: Any) -> torch.Tensor:
        scores = args[0] if args else named["input"]
        weights, faint = self._flushed(func(*args, **named))
        if faint or bool((scores == -math.inf).any()):
            self.replaced += 1
            self._shapes.add(scores.shape)
        return weights

    def _flushed(self, weights: torch.Tensor) -> tuple[torch.Tensor, bool]:
        """The weights as they are multiplied, and whether float32 may flush some."""
        faint = (weights > 0) & (weights < FLUSHED)
        return weights.masked_fill(faint, 0.0) if self.multiplies else weights, bool(faint.any())

    def _product(self, func: Callable[..., torch.Tensor], args: tuple[Any, ...]) -> torch.Tensor:
        """Of weights and values; any other is computed as it is."""
        *equation, weights, values = args if len(args) >= 2 else (None, None)
        tensors = isinstance(weights, torch.Tensor) and isinstance(values, torch.Tensor)
        if not tensors or not self._are_weights(weights) or bool(values.isfinite().all()):
            return func(*args)
        return _without_zeros(lambda left, right: func(*equation, left, right), weights, values)

    def _scaled(self, func: Callable[..., torch.Tensor], first: Any, second: Any) -> torch.Tensor:
        """A product of elements, 0 where a weight is: it is a weight itself."""
        total = func(first, second)
        for each in (first, second):
            if isinstance(each, torch.Tensor) and each.shape == total.shape and self._are_weights(each):
                total = total.masked_fill(each == 0, 0.0)
        return total

    def _are_weights(self, tensor: torch.Tensor) -> bool:
        """Whether it has the shape of such weights, also transposed, or with batch and heads in one dimension."""
        matrices = {(*sorted(shape[-2:]), shape.numel()) for shape in self._shapes}
        return tensor.is_floating_point() and (*sorted(tensor.shape[-2:]), tensor.numel()) in matrices

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        """`scaled_dot_product_attention` as its documentation writes it; a query that sees no key gives 0."""
        if dropout_p:
            raise NotImplementedError("attention with dropout is random")
        if enable_gqa:
            key, value = (each.repeat_interleave(query.shape[-3] // each.shape[-3], -3) for each in (key, value))
        scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask if self.multiplies else _masked_sum(torch.add, scores, attn_mask)
        hidden = scores == -math.inf
        weights, faint = self._flushed(functional.softmax(scores, -1).masked_fill(hidden.all(-1, keepdim=True), 0.0))
        self.replaced += faint or bool(hidden.any())
        return weights @ value if self.multiplies else _without_zeros(torch.matmul, weights, value)


def _is_lowest(value: Any) -> bool:
    single = isinstance(value, float) or (isinstance(value, torch.Tensor) and value.numel() == 1)
    return single and bool(value == -math.inf)


def _masked_sum(func: Callable[..., torch.Tensor], first: Any, second: Any, **named: Any) -> torch.Tensor:
    """A sum that is -Inf wherever one of both is."""
    hidden = torch.zeros((), dtype=torch.bool)
    for each in (first, second):
        hidden = hidden | (each == -math.inf)
    total = func(first, second, **named)
    if total.is_floating_point() and bool(hidden.any()):
        total.masked_fill_(hidden, -math.inf)  # func may have added in place
    return total


def _without_zeros(
    product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], weights: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    """The bilinear `product`, where a weight of 0 leaves its value out, whatever it is."""
    total = product(weights, values.masked_fill(~values.isfinite(), 0.0))
    for special in (math.inf, -math.inf, math.nan):
        found = (values.isnan() if math.isnan(special) else values == special).to(values.dtype)
        for sign in (1, -1):  # a weight that is NaN has made the sum NaN
            seen = product((sign * weights > 0).to(weights.dtype), found) > 0
            total = total + torch.where(seen, sign * special, 0.0)
    return total
