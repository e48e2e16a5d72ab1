"""Evaluates a graph with torch on real tensors: what the patterns' kernels are tested against."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from cutesmith.patterns.graph.attributes import (
    Blocks,
    Constant,
    Gather,
    Input,
    Iota,
    Joined,
    Recurrent,
    Reduction,
    Scalar,
    Scan,
    Scatter,
    Search,
    Sized,
    Sort,
    Transform,
    View,
    Viewed,
)
from cutesmith.patterns.graph.dtypes import is_float, torch_dtype
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node
from cutesmith.patterns.graph.operations import POINTWISE
from cutesmith.patterns.graph.window_attributes import DepthToSpace, Interleaving, Windows
from cutesmith.patterns.graph.windows import Pooling, Samples, Share

Dims = tuple[int, ...]
Reduce = Callable[[torch.Tensor, Dims, float], torch.Tensor]


def _one_by_one(function: Callable[..., torch.Tensor]) -> Reduce:
    """For functions that reduce one dimension a call."""

    def reduce(x: torch.Tensor, dims: Dims, _: float) -> torch.Tensor:
        for dim in dims:
            x = function(x, dim, keepdim=True)
        return x

    return reduce


def _at_once(function: Callable[..., torch.Tensor]) -> Reduce:
    """For functions that take a tuple of dimensions, and every dimension for an empty one."""
    return lambda x, dims, _: function(x, dims, keepdim=True) if dims else x


def _first_index(function: Callable[..., torch.Tensor]) -> Reduce:
    """The index in the flattened reduced dimensions."""

    def reduce(x: torch.Tensor, dims: Dims, _: float) -> torch.Tensor:
        if not dims:
            return torch.zeros_like(x, dtype=torch.int64)
        kept = [dim for dim in range(x.ndim) if dim not in dims]
        flat = x.permute(*kept, *dims).reshape(*(x.shape[dim] for dim in kept), -1)
        return function(flat, dim=-1).reshape([1 if dim in dims else size for dim, size in enumerate(x.shape)])

    return reduce


def _truth(function: Callable[..., torch.Tensor]) -> Reduce:
    return lambda x, dims, _: _one_by_one(function)(x.to(torch.bool), dims, 0.0)


def _variance(x: torch.Tensor, dims: Dims, correction: float) -> torch.Tensor:
    mean = torch.mean(x, dims, keepdim=True) if dims else x
    total = torch.sum((x - mean) ** 2, dims, keepdim=True) if dims else torch.zeros_like(x)
    return total / max(math.prod(x.shape[dim] for dim in dims) - correction, 0.0)


REDUCTIONS: dict[str, Reduce] = {
    "sum": _at_once(torch.sum),
    "mean": _at_once(torch.mean),
    "max": _at_once(torch.amax),
    "min": _at_once(torch.amin),
    "prod": _one_by_one(torch.prod),
    "any": _truth(torch.any),
    "all": _truth(torch.all),
    "argmax": _first_index(torch.argmax),
    "argmin": _first_index(torch.argmin),
    "var": _variance,
}
"""Reduction name → function of a tensor, its dimensions and the correction of `var`. `argmax` and `argmin` give the
first index and treat NaN as the extreme, as PyTorch does."""


def interpret(graph: Graph, inputs: Sequence[Any], *, precision: torch.dtype = torch.float64) -> list[torch.Tensor]:
    """The outputs, in their dtypes; floats are computed in `precision`, rounded where a cast or an output asks for it.

    `inputs` are tensors and numbers as the traced function takes them.
    """
    values: dict[int, torch.Tensor] = {}
    for node in graph.nodes():
        operands = [values[id(child)] for child in node.inputs]
        values[id(node)] = _evaluate(node, operands, inputs, precision)
    return [values[id(node)].expand(node.shape).to(torch_dtype(node.dtype)) for node in graph.outputs]


def _evaluate(node: Node, operands: list[torch.Tensor], inputs: Sequence[Any], precision: torch.dtype) -> torch.Tensor:
    kind = precision if is_float(node.dtype) else torch_dtype(node.dtype)
    if node.op in LEAVES:
        return _leaf(node, inputs, kind)
    if node.op == "recur":
        return _recurrent(Recurrent.of(node), [each.to(kind) for each in operands])
    if node.op == "cast":  # through the node's own dtype, so that the rounding that it asks for happens
        return operands[0].to(torch_dtype(node.dtype)).to(kind).expand(node.shape)
    if node.op == "reshape":
        return operands[0].reshape(node.shape)
    if node.op == "windows":
        return _windows(Windows.of(node), operands[0], node.shape)
    if node.op == "scaled":
        return operands[0].to(kind) * _repeated(operands[1].to(kind), Blocks.of(node).sizes, node.shape)
    if node.op == "computed":
        return operands[0].t()
    if node.op == "joined":
        return torch.cat([each.to(kind) for each in operands], Joined.of(node).dim)
    if node.op == "chosen":
        return operands[0].to(kind)[operands[1].squeeze((-2, -1))]
    if node.op == "pool":
        return _pooled(Pooling.of(node), operands[0]).to(kind)
    if node.op == "interleave":
        return _interleaved(Interleaving.of(node), operands, node.shape)
    if node.op == "depth_to_space":
        return _in_space(DepthToSpace.of(node), operands[0], node.shape)
    if node.op == "grouped":  # a matrix for each row that has one
        rows = torch.arange(int(operands[1].amax()), dtype=operands[1].dtype)
        return operands[0].to(kind)[torch.searchsorted(operands[1], rows, right=True)]
    if node.op == "contract" and node.inputs[1].op == "grouped":
        products = (operands[0].to(kind)[: len(operands[1]), None] @ operands[1])[:, 0]
        return torch.cat((products, products.new_zeros(node.shape[0] - len(products), node.shape[1])))
    if node.op == "contract":
        return (operands[0].to(kind) @ operands[1].to(kind)).expand(node.shape)
    if node.op == "stored":
        return viewed(operands[0].contiguous(), Viewed.of(node).views, inputs)
    if node.op == "take":
        sizes = zip(operands[1:], operands[0].shape, strict=True)
        places = [place.clamp(0, max(size - 1, 0)) for place, size in sizes]
        return operands[0][tuple(torch.broadcast_tensors(*places))].expand(node.shape)
    if node.op == "gather":
        return torch.gather(operands[0], Gather.of(node).dim, operands[1].expand(node.shape))
    if node.op == "scatter":
        return _scattered(Scatter.of(node), *operands, node.shape, kind)
    if node.op == "search":
        return _searched(operands[0], operands[1], Search.of(node).right)
    if node.op == "sort":
        sort = Sort.of(node)
        found = operands[0].sort(dim=sort.dim, descending=sort.descending, stable=True)
        return found[sort.places].narrow(sort.dim, 0, node.shape[sort.dim]).to(kind)
    if node.op == "pairs":
        return torch.stack(operands, -1).to(kind)
    if node.op == "transform":
        return _transformed(Transform.of(node), operands, node.shape[-1]).to(kind)
    if node.op == "scan":
        if Scan.of(node).operation == "linear":
            return _recurrence(Scan.of(node), *operands).to(kind)
        return _scan(Scan.of(node), operands[0], node.shape).to(kind)
    if node.is_reduction:
        reduction = Reduction.of(node)
        return REDUCTIONS[node.op](operands[0], reduction.dims, reduction.correction).to(kind)
    return POINTWISE[node.op].torch(*operands).to(kind).expand(node.shape)


def _transformed(transform: Transform, parts: list[torch.Tensor], wanted: int) -> torch.Tensor:
    """A part of PyTorch's own transform."""
    length, kept = transform.length, slice(transform.start, transform.start + wanted)
    if transform.of_half:
        return torch.fft.irfft(torch.complex(*parts), n=length, norm="forward")[..., kept]
    z = torch.complex(*parts) if len(parts) > 1 else parts[0]
    z = torch.fft.fft(z, n=length) if transform.sign < 0 else torch.fft.ifft(z, n=length, norm="forward")
    return (z.imag if transform.imag else z.real)[..., kept]


def _repeated(scales: torch.Tensor, blocks: tuple[int, int], shape: Dims) -> torch.Tensor:
    """The scale of each element."""
    for dim, block in zip((-2, -1), blocks, strict=True):
        scales = scales.repeat_interleave(block or shape[dim], dim)
    return scales


def _leaf(node: Node, inputs: Sequence[Any], kind: torch.dtype) -> torch.Tensor:
    if node.op == "constant":
        return torch.tensor(Constant.of(node).value, dtype=kind)
    if node.op == "sized":
        return torch.tensor(Sized.of(node).law.value([getattr(value, "shape", ()) for value in inputs]), dtype=kind)
    if node.op == "iota":
        dim = Iota.of(node).dim
        along = [size if at == dim else 1 for at, size in enumerate(node.shape)]
        return torch.arange(node.shape[dim]).reshape(along).expand(node.shape)
    if node.op == "scalar":
        return torch.tensor(inputs[Scalar.of(node).index], dtype=kind)
    return viewed(inputs[Input.of(node).index], Input.of(node).views, inputs).to(kind)


def viewed(value: torch.Tensor, views: Sequence[View], inputs: Sequence[Any]) -> torch.Tensor:
    """The value seen through views, whose source we wrote ourselves, in a function of these inputs."""
    names = {f"x{place}": each for place, each in enumerate(inputs)}
    for view in views:
        value = eval(view.code("x", list(names)), {"x": value, **names})
    return value


def _in_space(order: DepthToSpace, x: torch.Tensor, shape: Dims) -> torch.Tensor:
    """Every element at its position, where there is one."""
    found = torch.zeros(shape, dtype=x.dtype)
    x = x.reshape(*shape[: -order.rank], *order.strides, *order.places)
    for phases in itertools.product(*map(range, order.strides)):
        for places in itertools.product(*map(range, order.places)):
            steps = zip(places, order.strides, phases, order.apart, order.first, strict=True)
            at = tuple(place * stride + phase * apart + first for place, stride, phase, apart, first in steps)
            if all(0 <= each < size for each, size in zip(at, shape[-order.rank :], strict=True)):
                found[(..., *at)] = x[(..., *phases, *places)]
    return found


def _interleaved(order: Interleaving, phases: list[torch.Tensor], shape: Dims) -> torch.Tensor:
    """Every position from its place in its phase."""
    rank, found = order.rank, torch.zeros(shape, dtype=phases[0].dtype)
    for place, source in zip(itertools.product(*map(range, order.strides)), order.sources(), strict=True):
        positions = [slice(first, None, step) for first, step in zip(place, order.strides, strict=True)]
        target = found[(..., *positions)]
        if source:
            number, along = source
            chosen = phases[number].movedim(-rank - 1, -2 * rank - 1)
            chosen = chosen[(..., *(phase.at for phase in along), *(slice(None),) * rank)]
            sizes = zip(along, target.shape[-rank:], strict=True)
            target.copy_(chosen[(..., *(slice(phase.first, phase.first + size) for phase, size in sizes))])
    return found


def _pooled(pooling: Pooling, image: torch.Tensor) -> torch.Tensor:
    """PyTorch's own pooling, dimension by dimension where it is a mean of shares."""
    rank, name = len(pooling.spans), "max" if "max" in pooling.operation else "avg"
    if pooling.operation == "sample":
        return _sampled([span for span in pooling.spans if isinstance(span, Samples)], image)
    if all(isinstance(span, Share) for span in pooling.spans):
        counts = [span.count for span in pooling.spans]
        if name == "avg":
            return getattr(F, f"adaptive_avg_pool{rank}d")(image, counts)
        pooled = getattr(F, f"adaptive_max_pool{rank}d")(image, counts, return_indices=True)
        return pooled[pooling.operation == "argmax"]
    fields = ("taps", "step", "start", "dilation")
    taps, step, start, dilation = (tuple(getattr(span, field) for span in pooling.spans) for field in fields)
    partial = pooling.spans[0].partial
    if name == "avg":
        divisor = {"divisor_override": pooling.divisor or None} if rank > 1 else {}
        return getattr(F, f"avg_pool{rank}d")(image, taps, step, start, partial, pooling.counts_padding, **divisor)
    pooled = getattr(F, f"max_pool{rank}d")(image, taps, step, start, dilation, partial, return_indices=True)
    return pooled[pooling.operation == "argmax"]


def _sampled(spans: list[Samples], image: torch.Tensor) -> torch.Tensor:
    """PyTorch's own interpolation; it does not repeat its rules."""
    first, rank = spans[0], len(spans)
    linear = ("linear", "bilinear", "trilinear")[rank - 1]
    mode = {1: "nearest-exact" if first.centred else "nearest", 2: linear, 4: "bicubic"}[first.taps]
    ends = {} if first.taps == 1 else {"align_corners": first.aligned}
    if first.scale:
        return F.interpolate(image, scale_factor=[span.scale for span in spans], mode=mode, **ends)
    return F.interpolate(image, [span.count for span in spans], mode=mode, **ends)


SCANS = {
    "sum": torch.cumsum,
    "prod": torch.cumprod,
    "logsumexp": torch.logcumsumexp,
    "max": lambda x, dim: torch.cummax(x, dim).values,
    "min": lambda x, dim: torch.cummin(x, dim).values,
    "argmax": lambda x, dim: torch.cummax(x, dim).indices,
    "argmin": lambda x, dim: torch.cummin(x, dim).indices,
}


def _scan(scan: Scan, x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """From the other end, and with the neutral element before it, where the scan asks for that."""
    turned = x.flip(scan.dim) if scan.reverse else x
    result = SCANS[scan.operation](turned, scan.dim)
    if scan.exclusive:
        first = torch.full_like(result.narrow(scan.dim, 0, 1), {"sum": 0, "prod": 1}[scan.operation])
        result = torch.cat([first, result], scan.dim).narrow(scan.dim, 0, shape[scan.dim])
    return result.flip(scan.dim) if scan.reverse else result


def _recurrence(scan: Scan, term: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Step by step along the dimension, from the last one down where it is reversed."""
    turn = slice(None, None, -1 if scan.reverse else 1)
    terms, factors = ([*x.broadcast_to(term.shape).unbind(scan.dim)][turn] for x in (term, factor))
    state, states = torch.zeros_like(terms[0]), []
    for at, (b, a) in enumerate(zip(terms, factors, strict=True)):
        state = a * state + b if at else b
        states.append(state)
    return torch.stack(states[turn], scan.dim)


NEUTRAL = {"sum": 0, "prod": 1, "max": -math.inf, "min": math.inf, "last": 0}


def _scattered(scatter: Scatter, index: torch.Tensor, x: torch.Tensor, shape: Dims, kind: torch.dtype) -> torch.Tensor:
    """Element by element along the dimension of the index: the definition."""
    index, x = torch.broadcast_tensors(index, x.to(kind))
    start = NEUTRAL[scatter.operation]
    if not kind.is_floating_point and math.isinf(start):
        start = torch.iinfo(kind).min if start < 0 else torch.iinfo(kind).max
    result = torch.full(shape, start, dtype=kind)
    places = torch.arange(shape[scatter.dim]).reshape([-1 if at == scatter.dim else 1 for at in range(len(shape))])
    combine = {"sum": torch.add, "prod": torch.mul, "max": torch.maximum, "min": torch.minimum}
    for at in range(index.shape[scatter.dim]):
        here, value = index.narrow(scatter.dim, at, 1) == places, x.narrow(scatter.dim, at, 1)
        result = torch.where(here, combine.get(scatter.operation, lambda _, b: b)(result, value), result)
    return result.to(kind)


def _searched(line: torch.Tensor, value: torch.Tensor, right: bool) -> torch.Tensor:
    """How many elements lie before each value; NaN is the largest."""
    line = line if line.ndim == 1 else line.reshape(*line.shape[:-1], *(1,) * (value.ndim - line.ndim + 1), -1)
    each = value.unsqueeze(-1)
    after = line > each if right else line >= each
    return (~after).sum(-1)


def _recurrent(said: Recurrent, operands: list[torch.Tensor]) -> torch.Tensor:
    """The states of a layer, or its last cells, step by step."""
    given = dict(zip(said.roles, operands, strict=True))
    x, weights = given["given"], given["weights"]
    hidden = cell = x.new_zeros(x.shape[1], weights.shape[-1])
    hidden, cell, states = given.get("hidden", hidden), given.get("cell", cell), list[torch.Tensor]()
    for step in x.flip(0) if said.reverse else x:
        sums = hidden @ weights.mT + given.get("bias", 0)
        ours, theirs = step.chunk(said.gates, -1), sums.chunk(said.gates, -1)
        if said.kind == "gru":
            reset, update = (torch.sigmoid(a + b) for a, b in zip(ours[:2], theirs[:2], strict=True))
            new = torch.tanh(ours[2] + reset * theirs[2])
            hidden = (1 - update) * new + update * hidden
        elif said.kind == "lstm":
            taken, kept, new, shown = (a + b for a, b in zip(ours, theirs, strict=True))
            cell = torch.sigmoid(kept) * cell + torch.sigmoid(taken) * torch.tanh(new)
            hidden = torch.sigmoid(shown) * torch.tanh(cell)
        else:
            hidden = torch.tanh(step + sums) if said.kind == "tanh" else torch.relu(step + sums)
        states.append(hidden)
    return cell if said.cell else torch.stack(states[::-1] if said.reverse else states)


def _windows(windows: Windows, image: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """What each window sees, element by element: the definition, with an index for each position and tap."""
    first = image.ndim - windows.rank
    batch, channels, sizes = image.shape[: first - 1], image.shape[first - 1], image.shape[first:]
    inside, places = torch.ones((), dtype=torch.bool), torch.zeros((), dtype=torch.int64)
    counts = [windows.law(dim).of(size) for dim, size in enumerate(sizes)]
    for dim, size in enumerate(sizes):
        along = [1] * (2 * windows.rank)
        taps, positions = list(along), list(along)
        taps[dim], positions[windows.rank + dim] = windows.taps[dim], counts[dim]
        tap = torch.arange(windows.taps[dim]).view(taps)
        at = torch.arange(counts[dim]).view(positions) * windows.step[dim]
        at = at + tap * windows.dilation[dim] - windows.start[dim]
        inside = inside & (at >= 0) & (at % windows.divisor[dim] == 0) & (at // windows.divisor[dim] < size)
        places = places * size + (at // windows.divisor[dim]).clamp(0, max(size - 1, 0))
    flat = image.reshape(*batch, channels, -1)
    seen = torch.where(inside, flat[..., places], 0)
    if windows.taps_first:
        seen = seen.movedim(len(batch), len(batch) + windows.rank)
    return seen.reshape(shape)
