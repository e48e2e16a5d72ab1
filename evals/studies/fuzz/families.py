"""One step of a random function for each family of operations; weights, masks and indices become inputs.

A step returns the text of an expression, perhaps with writes into its value `{v}` behind it. It raises Unfit where no
value so far is what the family takes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from cutesmith.judge.reference_side.precision import widen
from evals.studies.fuzz import templates as t

SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 8, 13, 16, 17, 31, 32, 64, 100, 129)
LAST_SIZES = (*SIZES, 257, 1000, 1024, 4099)
WORK = 2_000_000
"""Multiplications of a step at most: the emulated GPU does some million a second."""
DTYPES = (
    *["float32"] * 9, *["bfloat16"] * 3, *["float16"] * 2, *["float64"] * 2,
    "int64", "int32", "int16", "uint8", "int8", "bool",
)  # fmt: skip


class Unfit(Exception):  # noqa: N818 - not an error: another step is taken
    """No value is what this step takes."""


@dataclass
class Draws:
    """What a function has so far, and random choices from it."""

    rng: random.Random
    most: int  # elements of a tensor
    special: bool = False  # NaN, infinities and extremes among the inputs
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    wide: dict[str, torch.Tensor] = field(default_factory=dict)  # the same, of inputs in float64
    inputs: list[torch.Tensor] = field(default_factory=list)
    weights: set[str] = field(default_factory=set)  # inputs that one step alone reads

    def input(self, value: torch.Tensor) -> str:
        """One more argument of the function; its name."""
        name = f"x{len(self.inputs)}"
        self.inputs.append(value)
        self.values[name], self.wide[name] = value, widen(value)
        return name

    def operand(self, fits: Callable[[torch.Tensor], bool] = lambda value: True) -> str:
        """One of the values that fit, more likely one of the last."""
        fitting = [name for name, value in self.values.items() if fits(value) and name not in self.weights]
        if not fitting:
            raise Unfit
        return self.rng.choice(fitting[-2:] if self.rng.random() < 0.8 else fitting)

    def floating(self, *ranks: int, full: bool = True) -> str:
        """A floating-point value of one of these ranks, with elements unless `full` is False."""
        return self.operand(
            lambda v: v.is_floating_point() and (not ranks or v.dim() in ranks) and (not full or v.numel() > 0)
        )

    def weight(self, shape: Sequence[int], like: torch.Tensor, fan_in: int = 1) -> str:
        """An input of this shape and of that value's dtype, whose products with `fan_in` numbers sum to about 1."""
        if torch.Size(shape).numel() > self.most:
            raise Unfit
        return self.own_input(tensor(self.rng, tuple(shape), dtype_name(like), False, max(1, fan_in) ** -0.5))

    def index(self, shape: Sequence[int], end: int) -> str:
        """An input of indices below `end`."""
        if not end:
            raise Unfit
        return self.own_input(torch.randint(0, end, tuple(shape)))

    def own_input(self, value: torch.Tensor) -> str:
        """An input for one step."""
        name = self.input(value)
        self.weights.add(name)
        return name

    def choice(self, *options: str) -> str:
        return self.rng.choice(options)

    def filled(self, templates: Sequence[str], name: str) -> str:
        """One of the templates, with this operand, dimensions of it, and another operand."""
        rank = self.values[name].dim()
        dims = sorted(self.rng.sample(range(rank), self.rng.randint(1, rank))) if rank else []
        written = tuple(d - rank if self.rng.random() < 0.5 else d for d in dims)
        dim = self.rng.choice((rank - 1, *range(rank))) if rank else 0
        other = self.operand()
        keep = self.rng.random() < 0.4
        return self.rng.choice(templates).format(name, other, dims=written, dim=dim, keep=keep, v="{v}")


def dtype_name(value: torch.Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def tensor(rng: random.Random, shape: tuple[int, ...], name: str, special: bool, scale: float = 1.0) -> torch.Tensor:
    """Random values in a random layout: dense, transposed, every second one, from an offset, or the same row."""
    dtype = getattr(torch, name)
    layout = rng.choice(("dense", "dense", "dense", "transposed", "sliced", "offset", "expanded")) if shape else "dense"
    whole = list(shape)
    if layout == "transposed":
        whole = whole[::-1]
    elif layout == "sliced":
        whole[-1] *= 2
    elif layout == "offset":
        whole[0] += 1
    elif layout == "expanded":
        whole[0] = min(1, whole[0])
    values = torch.randn(whole, dtype=torch.float64) * scale
    if not dtype.is_floating_point:
        values = (values * 4).round().clamp(0 if dtype == torch.uint8 else -9, 9)
    elif special and values.numel():
        flat = values.view(-1)
        for number in (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-15, 1e15):
            flat[rng.randrange(flat.numel())] = number
    values = values > 0 if dtype == torch.bool else values.to(dtype)
    if layout == "transposed":
        return values.permute(*reversed(range(len(shape))))
    if layout == "sliced":
        return values[..., ::2]
    return values[1:] if layout == "offset" else values.expand(shape)


def pointwise(d: Draws) -> str:
    name = d.operand()
    floating = d.values[name].is_floating_point()
    if d.rng.random() < 0.55:
        return d.filled(t.FLOAT_UNARY if floating and d.rng.random() < 0.65 else t.UNARY, name)
    return d.filled(t.FLOAT_BINARY if floating and d.rng.random() < 0.35 else t.BINARY, name)


def views(d: Draws) -> str:
    return d.filled(t.VIEWS, d.operand())


def movement(d: Draws) -> str:
    return d.filled(t.MOVES, d.operand())


def reduction(d: Draws) -> str:
    name = d.operand()
    both = d.values[name].is_floating_point() and d.rng.random() < 0.5
    return d.filled(t.FLOAT_REDUCTIONS if both else t.REDUCTIONS, name)


def norm(d: Draws) -> str:
    """Of one operand, or with weights and statistics of channels."""
    name = d.floating()
    value = d.values[name]
    if value.dim() < 2 or d.rng.random() < 0.5:
        return d.filled(t.NORMS, name)
    kind, channels = d.choice("layer", "rms", "batch", "training", "group", "instance"), value.shape[1]
    if kind in ("layer", "rms"):
        weight = d.weight(value.shape[-1:], value)
        bias = f",{d.weight(value.shape[-1:], value)}" if kind == "layer" else ""
        return f"F.{kind}_norm({name},{name}.shape[-1:],{weight}{bias})"
    weight, bias = d.weight((channels,), value), d.weight((channels,), value)
    if kind == "batch":
        mean, var = d.weight((channels,), value), d.weight((channels,), value)
        return f"F.batch_norm({name},{mean},{var}.abs()+0.1,{weight},{bias})"
    if kind == "training":
        return f"F.batch_norm({name},None,None,{weight},{bias},True)"
    if kind == "instance":
        return f"F.instance_norm({name},None,None,{weight},{bias})"
    groups = d.rng.choice([g for g in (1, 2, 3, 4, 8, channels) if g and channels % g == 0])
    return f"F.group_norm({name},{groups},{weight},{bias})"


def loss(d: Draws) -> str:
    """Of two operands, or of rows of scores and the number of the right one."""
    name = d.floating()
    value = d.values[name]
    if value.dim() != 2 or d.rng.random() < 0.5:
        return d.filled(t.LOSSES, name)
    target = d.index(value.shape[:1], value.shape[1])
    reduction = d.choice("mean", "sum", "none")
    smoothing = d.choice("", ",label_smoothing=0.1")
    return f"F.cross_entropy({name},{target},reduction='{reduction}'{smoothing})"


def contraction(d: Draws) -> str:
    """A product with a weight, of a value with itself, or of two values."""
    name = d.floating(1, 2, 3, 4, full=False)
    value = d.values[name]
    k, rank = value.shape[-1], value.dim()
    n = d.rng.choice(LAST_SIZES if k < 100 else SIZES)
    if value.numel() * n > WORK:
        raise Unfit
    forms: dict[str, Callable[[], str]] = {
        "linear": lambda: f"F.linear({name},{d.weight((n, k), value, k)})",
        "bias": lambda: f"F.linear({name},{d.weight((n, k), value, k)},{d.weight((n,), value)})",
        "matmul": lambda: f"{name}@{d.weight((k, n), value, k)}",
        "mv": lambda: f"{name}@{d.weight((k,), value, k)}",
        "einsum": lambda: f"torch.einsum('...k,nk->...n',{name},{d.weight((n, k), value, k)})",
    }
    if rank >= 2:
        m = value.shape[-2]
        batch = value.shape[:-2]
        forms["left"] = lambda: f"{d.weight((n, m), value, m)}@{name}"
        forms["batched"] = lambda: f"{name}@{d.weight((*batch, k, n), value, k)}"
        forms["gram"] = lambda: f"{name}@{name}.mT"
        forms["other"] = lambda: d.filled(("{0}@{1}", "{0}@{1}.mT", "{0}.mT@{1}"), name)
        if rank == 2:
            forms["addmm"] = lambda: (
                f"torch.addmm({d.weight((d.rng.choice((1, m)), n), value)},{name},{d.weight((k, n), value, k)},"
                f"beta={d.choice('1', '0.5')},alpha={d.choice('1', '2')})"
            )
            forms["outer"] = lambda: f"torch.einsum('mk,nk->nm',{name},{d.weight((n, k), value, k)})"
        if rank == 3:
            b = batch[0]
            forms["bmm"] = lambda: f"torch.bmm({name},{d.weight((b, k, n), value, k)})"
            forms["swapped"] = lambda: f"torch.einsum('bmk,bkn->bnm',{name},{d.weight((b, k, n), value, k)})"
            forms["baddbmm"] = lambda: (
                f"torch.baddbmm({d.weight((b, 1, n), value)},{name},{d.weight((b, k, n), value, k)})"
            )
    return forms[d.rng.choice(sorted(forms))]()


def convolution(d: Draws) -> str:
    """One to three dimensions, with strides, padding, dilation and groups, transposed at times."""
    name = d.floating(3, 4, 5)
    value = d.values[name]
    channels, spatial = value.shape[1], value.shape[2:]
    groups = d.rng.choice([g for g in (1, 1, 1, 2, 4, channels) if g and channels % g == 0])
    outputs = groups * d.rng.choice((1, 1, 2, 3, 4, 8))
    taps = [d.rng.choice([k for k in (1, 2, 3, 3, 5, 7) if k <= size] or [1]) for size in spatial]
    fan_in = channels // groups * int(torch.Size(taps).numel())
    if value.numel() * outputs * int(torch.Size(taps).numel()) // groups > WORK:
        raise Unfit
    stride, padding = d.rng.choice((1, 1, 2, 3)), d.rng.choice((0, 0, 1, 2))
    dilation = d.rng.choice((1, 1, 1, 2))
    transposed = d.rng.random() < 0.25
    shape = (channels, outputs // groups, *taps) if transposed else (outputs, channels // groups, *taps)
    weight = d.weight(shape, value, fan_in)
    bias = d.weight((outputs,), value) if d.rng.random() < 0.6 else "None"
    more = f"stride={stride},padding={padding},dilation={dilation},groups={groups}"
    if transposed and stride > 1 and d.rng.random() < 0.5:
        more += ",output_padding=1"
    return f"F.conv{'_transpose' * transposed}{len(spatial)}d({name},{weight},{bias},{more})"


def window(d: Draws) -> str:
    """Pooling, resampling and unfolding of images."""
    name = d.floating(3, 4, 5)
    rank = d.values[name].dim() - 2
    size, stride, padding = d.rng.choice((1, 2, 2, 3, 3, 5)), d.rng.choice((1, 2, 3)), d.rng.choice((0, 0, 1))
    ceil, to = d.choice("True", "False"), d.rng.choice((1, 2, 3, 5))
    linear, aligned = ("linear", "bilinear", "trilinear")[rank - 1], d.choice("True", "False")
    forms = [
        f"F.max_pool{rank}d({name},{size},{stride},{padding},ceil_mode={ceil})",
        f"F.max_pool{rank}d({name},{size},{stride},{padding},dilation=2)",
        f"F.max_pool{rank}d({name},{size},{stride},{padding},return_indices=True)[1]",
        f"F.avg_pool{rank}d({name},{size},{stride},{padding},ceil_mode={ceil})",
        f"F.avg_pool{rank}d({name},{size},{stride},{padding},count_include_pad=False)",
        f"F.adaptive_avg_pool{rank}d({name},{to})",
        f"F.adaptive_max_pool{rank}d({name},{to})",
        f"F.interpolate({name},scale_factor={d.rng.choice((2, 0.5, 1.5))},mode='nearest')",
        f"F.interpolate({name},scale_factor=2,mode='{linear}',align_corners={aligned})",
    ]
    if rank == 2:
        forms += [
            f"F.interpolate({name},scale_factor=2,mode='bicubic',align_corners={aligned})",
            f"F.unfold({name},{size},padding={padding},stride={stride})",
            f"F.fold(F.unfold({name},{size},1,{padding},{stride}),{name}.shape[2:],{size},1,{padding},{stride})",
            f"F.lp_pool2d({name},2,{size},{stride})",
            f"F.pixel_shuffle({name},2)",
        ]
    return d.rng.choice(forms)


def scan(d: Draws) -> str:
    name = d.operand(lambda value: value.dim() > 0)
    more = ("{0}.logcumsumexp({dim})",) if d.values[name].is_floating_point() else ()
    return d.filled((*t.SCANS, *more), name)


def write(d: Draws) -> str:
    """A new tensor that is written to in parts, through views, `out=` or masks."""
    return d.filled(t.WRITES, d.operand())


def attention(d: Draws) -> str:
    """softmax(scale QKᵀ + mask) V, as PyTorch's function and written out."""
    q = d.floating(3, 4)
    value = d.values[q]
    *batch, length, dim = value.shape
    keys = d.rng.choice((1, 5, 16, 33, 64, 100, length))
    if value.numel() * keys > WORK:
        raise Unfit
    kind = d.choice("plain", "causal", "scale", "bool", "float", "grouped", "written", "written mask")
    heads = batch
    if kind == "grouped":
        if len(batch) != 2 or batch[1] % 2:
            raise Unfit
        heads = [batch[0], batch[1] // 2]
    wide = dim if kind.startswith("written") or d.rng.random() < 0.8 else 2 * dim
    k, v = d.weight((*heads, keys, dim), value), d.weight((*heads, keys, wide), value)
    if kind.startswith("written"):
        scores = f"{q}@{k}.mT*{dim**-0.5:.6g}"
        if kind == "written mask":
            mask = d.own_input(tensor(d.rng, (length, keys), "bool", False))
            scores = f"({scores}).masked_fill({mask},-1e4)"
        return f"torch.softmax({scores},-1)@{v}"
    mask = ""
    if kind in ("bool", "float"):
        mask = d.own_input(tensor(d.rng, (length, keys), "bool" if kind == "bool" else dtype_name(value), False))
    options = {"causal": ",is_causal=True", "scale": ",scale=0.3", "grouped": ",enable_gqa=True"}
    more = f",attn_mask={mask}" if mask else options.get(kind, "")
    return f"F.scaled_dot_product_attention({q},{k},{v}{more})"


def selection(d: Draws) -> str:
    """Sorting, the largest, and elements taken by an index that is an input."""
    name = d.operand(lambda value: value.dim() > 0 and value.dtype != torch.bool and value.numel() > 0)
    value = d.values[name]
    if d.rng.random() < 0.45:
        return d.filled(t.SELECTION, name)
    dim, count = d.rng.randrange(value.dim()), d.rng.choice((1, 2, 5, 17))
    size = value.shape[dim]
    forms: dict[str, Callable[[], str]] = {
        "select": lambda: f"{name}.index_select({dim},{d.index((count,), size)})",
        "take": lambda: f"{name}[{d.index((count,), value.shape[0])}]",
        "gather": lambda: f"{name}.gather({dim},{d.index((*value.shape[:dim], count, *value.shape[dim + 1 :]), size)})",
        "along": lambda: f"torch.take_along_dim({name},{d.index(value.shape, size)},{dim})",
        "onehot": lambda: f"F.one_hot({d.index((count,), 5)},5)*{name}.sum()",
    }
    if value.dim() == 2:
        forms["embedding"] = lambda: f"F.embedding({d.index((count, 3), value.shape[0])},{name})"
    if value.dim() == 1 and value.is_floating_point():
        forms["search"] = lambda: f"torch.searchsorted({name}.sort().values,{d.weight((count,), value)})"
    return forms[d.rng.choice(sorted(forms))]()


def scatter(d: Draws) -> str:
    """Elements written, added or reduced where an index that is an input says."""
    name = d.operand(lambda value: value.dim() > 0 and value.dtype != torch.bool and value.numel() > 0)
    value = d.values[name]
    dim, count = d.rng.randrange(value.dim()), d.rng.choice((1, 2, 5, 17))
    size, rest = value.shape[dim], (value.shape[:dim], value.shape[dim + 1 :])
    shape = (*rest[0], count, *rest[1])
    forms: dict[str, Callable[[], str]] = {
        "add": lambda: f"{name}.scatter_add({dim},{d.index(shape, size)},{d.weight(shape, value)})",
        "index_add": lambda: f"{name}.index_add({dim},{d.index((count,), size)},{d.weight(shape, value)})",
        "amax": lambda: f"{name}.scatter_reduce({dim},{d.index(shape, size)},{d.weight(shape, value)},'amax')",
        "value": lambda: f"{name}.scatter({dim},{d.index(shape, size)},2)",
        "put": lambda: (
            f"{name}.index_put(({d.index((count,), value.shape[0])},),"
            f"{d.weight((count, *value.shape[1:]), value)},accumulate=True)"
        ),
        "fill": lambda: f"{name}.index_fill({dim},{d.index((count,), size)},-1)",
    }
    return forms[d.rng.choice(sorted(forms))]()


FAMILIES: dict[str, Callable[[Draws], str]] = {
    "pointwise": pointwise,
    "views": views,
    "movement": movement,
    "reductions": reduction,
    "norms": norm,
    "losses": loss,
    "contractions": contraction,
    "convolutions": convolution,
    "windows": window,
    "scans": scan,
    "attention": attention,
    "selection": selection,
    "scatters": scatter,
    "writes": write,
}
