"""What PyTorch's own decompositions compute otherwise than its kernels do."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from cutesmith.patterns.tracing import (
    indexing,
    recurrent,
    resampling,
    signals,
    small_matrices,
    special_functions,
    window_gradients,
)


def decomposition_of(func: Any, *, composite: bool) -> Callable[..., Any] | None:
    """Ours where there is one, else PyTorch's, None without either; a `composite` operation is made of others."""
    from torch._decomp import decomposition_table

    if str(func).startswith("aten._foreach_"):
        return functools.partial(_for_each, func)
    return _OURS.get(func) or (func.decompose if composite else decomposition_table.get(func))


def _for_each(func: Any, *args: Any, **named: Any) -> list[Any] | None:
    """An operation on lists of tensors, as the operation on one of each; what is not a list is the same for all."""
    name = str(func).split(".")[1].removeprefix("_foreach_")
    single = torch.linalg.vector_norm if name == "norm" else getattr(torch.ops.aten, name)
    count = len(args[0])

    def spread(value: Any) -> list[Any]:
        return list(value) if isinstance(value, (list, tuple)) else [value] * count

    lists, keywords = list(map(spread, args)), {key: spread(value) for key, value in named.items()}
    results = [
        single(*(each[at] for each in lists), **{key: values[at] for key, values in keywords.items()})
        for at in range(count)
    ]
    return None if func._schema.is_mutable else results


def arguments_without_values(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments that give tensors without values the shapes and types that PyTorch's kernels give to others."""
    change = _ARGUMENTS.get(func)
    return change(*args) if change else args


def _counted_from_the_first(x: torch.Tensor, order: float = 2, dims: Any = None, *more: Any) -> tuple[Any, ...]:
    """PyTorch 2.11's decomposition of a norm keeps dimensions of size 1 that are counted from the last."""
    return x, order, dims and [dim % max(1, x.dim()) for dim in dims], *more


def _lstm(x: torch.Tensor, states: list[torch.Tensor], *args: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """PyTorch 2.11's decomposition leaves a dimension of 1 in the last states: they have the shapes of the first."""
    out, *last = _LSTM.decompose(x, states, *args)
    hidden, cell = (end if end.shape == start.shape else end.view(start.shape) for end, start in zip(last, states))
    return out, hidden, cell


def _has_same_storage(x: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether as many elements lie behind both, as forward derivatives ask of a number and its tangent."""
    first, second = (each.untyped_storage().nbytes() // each.itemsize for each in (x, other))
    return bool(first == second)


def _kthvalue(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The last of the k smallest; NaN is larger than any number."""
    if not x.dim():
        return x.clone(), x.argmax()
    values, places = (found.narrow(dim, k - 1, 1) for found in torch.topk(x, k, dim, largest=False))
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def _median(x: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The lower of the two in the middle; NaN where there is one, the first of them."""
    values, places = _kthvalue(x, (x.shape[dim] + 1) // 2 if x.dim() else 1, dim, keepdim)
    if not x.is_floating_point():
        return values, places
    first = x.isnan().to(torch.int32).max(dim, keepdim)
    return torch.where(first.values > 0, torch.nan, values), torch.where(first.values > 0, first.indices, places)


def _trilinear(
    first: torch.Tensor,
    second: torch.Tensor,
    third: torch.Tensor,
    first_lacks: list[int],
    second_lacks: list[int],
    third_lacks: list[int],
    sums: list[int],
    unroll: int = 1,
) -> torch.Tensor:
    """Two of the factors as a product of matrices, where the third lacks a dimension that is summed over."""
    rank = first.dim() + len(first_lacks)
    names = [[dim for dim in range(rank) if dim not in lacks] for lacks in (first_lacks, second_lacks, third_lacks)]
    inner = [dim for dim in range(rank) if dim not in sums or dim in names[2]]
    product = torch.einsum(first, names[0], second, names[1], inner)
    return torch.einsum(product, inner, third, names[2], [dim for dim in range(rank) if dim not in sums])


def _cdist(a: torch.Tensor, b: torch.Tensor, order: float, mode: int | None = None) -> torch.Tensor:
    """Norms of differences; PyTorch multiplies matrices for many rows, where small distances cancel."""
    return torch.linalg.vector_norm(a.unsqueeze(-2) - b.unsqueeze(-3), order, -1)  # type: ignore[no-any-return]


def _fake_quantized(x: torch.Tensor, scale: Any, zero: Any, least: int, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rounded to a grid, and which numbers lay within its ends."""
    place = torch.round(x * (1.0 / scale)) + zero
    return ((place.clamp(least, most) - zero) * scale).to(x.dtype), (place >= least) & (place <= most)


def _fake_quantized_channels(
    x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, dim: int, least: int, most: int
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = [-1 if at == dim % x.dim() else 1 for at in range(x.dim())]
    return _fake_quantized(x, scale.view(shape), zero.view(shape), least, most)


def _fake_quantized_by_tensors(
    x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, enabled: torch.Tensor, least: int, most: int
) -> tuple[torch.Tensor, torch.Tensor]:
    value, inside = _fake_quantized(x, scale, zero, least, most)
    return torch.where(enabled > 0, value, x), inside | (enabled <= 0)


_ROUNDED = {"lower": torch.floor, "higher": torch.ceil, "nearest": torch.round}
"""What a quantile's place becomes where its `interpolation` takes one element."""


def _quantile(
    x: torch.Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Any:
    """Between the two sorted elements that lie around the place, or one of them; NaN where a line has one."""
    lines = x.flatten() if dim is None else x.movedim(dim, -1)
    place = (q if isinstance(q, torch.Tensor) else x.new_full((), q)) * (lines.shape[-1] - 1)
    place = _ROUNDED[interpolation](place) if interpolation in _ROUNDED else place
    ordered = lines.sort(-1).values
    below, above = (ordered[..., end.long().flatten()] for end in (place.floor(), place.ceil()))
    share = torch.full_like(place, 0.5) if interpolation == "midpoint" else place - place.floor()
    values = torch.lerp(below, above, share.flatten())
    values = torch.where(lines.isnan().any(-1, keepdim=True), torch.nan, values)
    found = values.movedim(-1, 0).reshape((*place.shape, *values.shape[:-1]))
    if not keepdim:
        return found
    if dim is None:
        return found.reshape((*place.shape, *[1] * x.dim()))
    return found.unsqueeze(dim if dim < 0 else dim + place.dim())


def _cov(x: torch.Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """Of rows; PyTorch looks at a value to warn where there are too few columns."""
    if fweights is not None or aweights is not None:
        return NotImplemented
    rows = x.reshape(-1, x.shape[-1] if x.dim() else 1)
    apart = rows - rows.mean(1, keepdim=True)
    return (apart @ apart.mT / max(0, rows.shape[1] - correction)).squeeze()


def _fill_diagonal(x: torch.Tensor, value: float, wrap: bool = False) -> Any:
    if x.dim() != 2 or (wrap and x.shape[0] > x.shape[1]):
        return NotImplemented
    x.diagonal().fill_(value)
    return x


def _nanmedian(x: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The lower of the two in the middle of those that are not NaN."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    ordered = x.sort(stable=True, dim=dim)
    middle = (x.isnan().logical_not().sum(dim, keepdim=True) - 1).clamp(min=0) // 2
    values, places = (found.gather(dim, middle) for found in ordered)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def _pdist(x: torch.Tensor, order: float = 2) -> torch.Tensor:
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    return torch.linalg.vector_norm(x[first] - x[second], order, -1)  # type: ignore[no-any-return]


def _addbmm(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1) -> torch.Tensor:
    """The sum of a batch of products is one product along the batch, too."""
    return torch.addmm(x, a.transpose(0, 1).flatten(1), b.flatten(0, 1), beta=beta, alpha=alpha)


def _lcm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    divisor = torch.gcd(a, b)
    return torch.where(divisor == 0, 0, a // divisor.clamp(min=1) * b).abs()


def _mvlgamma(x: torch.Tensor, order: int) -> torch.Tensor:
    constant = order * (order - 1) / 4 * math.log(math.pi)
    return sum((torch.lgamma(x - place / 2) for place in range(order)), x.new_full((), constant))


_LSTM = torch.ops.aten.lstm.input
_ARGUMENTS: dict[Any, Callable[..., tuple[Any, ...]]] = {
    torch.ops.aten.linalg_vector_norm.default: _counted_from_the_first,
}
_OURS: dict[Any, Callable[..., Any]] = {
    **indexing.DECOMPOSITIONS,
    **recurrent.decompositions(_lstm),
    **resampling.DECOMPOSITIONS,
    **signals.DECOMPOSITIONS,
    **small_matrices.DECOMPOSITIONS,
    **special_functions.DECOMPOSITIONS,
    **window_gradients.DECOMPOSITIONS,
    torch.ops.aten._cdist_forward.default: _cdist,
    torch.ops.aten.cov.default: _cov,
    torch.ops.aten.quantile.default: _quantile,
    torch.ops.aten.quantile.scalar: _quantile,
    torch.ops.aten.fill_diagonal_.default: _fill_diagonal,
    torch.ops.aten.fake_quantize_per_tensor_affine_cachemask.default: _fake_quantized,
    torch.ops.aten.fake_quantize_per_channel_affine_cachemask.default: _fake_quantized_channels,
    torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _fake_quantized_by_tensors,
    torch.ops.aten._has_same_storage_numel.default: _has_same_storage,
    torch.ops.aten._is_all_true.default: lambda x: x.all(),
    torch.ops.aten._trilinear.default: _trilinear,
    torch.ops.aten.kthvalue.default: _kthvalue,
    torch.ops.aten.median.dim: _median,
    torch.ops.aten.median.default: lambda x: _median(x.flatten(), 0)[0],
    torch.ops.aten.nanmedian.dim: _nanmedian,
    torch.ops.aten.nanmedian.default: lambda x: _nanmedian(x.flatten(), 0)[0],
    torch.ops.aten._pdist_forward.default: _pdist,
    torch.ops.aten.addbmm.default: _addbmm,
    torch.ops.aten.lcm.default: _lcm,
    torch.ops.aten.mvlgamma.default: _mvlgamma,
}
