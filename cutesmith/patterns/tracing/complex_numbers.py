"""Complex tensors of a function as pairs of real ones: each operation on them is traced as operations on their parts.

A complex tensor has no node. It is a tensor without storage whose real and imaginary part are tensors of the trace, and
what is computed of it is computed of them, as PyTorch computes it. So products, sums and views of complex numbers are
ordinary nodes, and a Fourier transform is one of two real numbers for each complex one (`fourier.py`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes

from cutesmith.patterns.graph.shapes import broadcast
from cutesmith.patterns.tracing.fourier import real_sums, transform

aten = torch.ops.aten
REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
COMPLEX = {real: dtype for dtype, real in REAL.items()}


class Pair(NamedTuple):
    """A complex value: tensors, or numbers; within a transform None for an imaginary part of 0."""

    real: Any
    imag: Any


class Unknown(Exception):
    """An operation that has no rule for complex numbers."""


class ComplexNumbers:
    """The parts of the complex tensors of a trace."""

    def __init__(self) -> None:
        self._parts: dict[int, tuple[weakref.ref[torch.Tensor], Pair]] = {}

    def track(self, tensor: torch.Tensor, parts: Pair) -> torch.Tensor:
        """The complex tensor, whose parts are known from now on."""
        self._parts[id(tensor)] = weakref.ref(tensor), parts
        return tensor

    def concern(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> bool:
        """Whether an operation takes or gives complex numbers."""
        return func in _MAKERS or named.get("dtype") in REAL or any(map(_is_complex, _flat([*args, *named.values()])))

    def computed(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
        """What an operation gives: real tensors, or complex ones without storage. Raises Unknown.

        It runs within the trace, which sees what is done with the parts.
        """
        if torch.Tag.inplace_view in func.tags:
            return self._viewed_in_place(func, args)
        rule = _RULES.get(func) or (_by_parts if func.overloadpacket in _LINEAR else None)
        if rule is None and func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            return func.decompose(*args, **named)
        if rule is None:
            raise Unknown
        given = [self._pairs(each) for each in args]
        result = rule(func, *given, **{name: self._pairs(value) for name, value in named.items()})
        if isinstance(result, list):
            return [self._joined(each) for each in result]
        return self._joined(result) if isinstance(result, Pair) else result

    def _viewed_in_place(self, func: Any, args: Sequence[Any]) -> torch.Tensor:
        """A tensor that becomes a view of itself, as by `transpose_`."""
        parts = self._pairs(getattr(aten, func.overloadpacket.__name__[:-1])(*args))
        with _disable_current_modes():
            return self.track(func(*args), parts)

    def _pairs(self, value: Any) -> Any:
        """A complex value as a Pair, also within lists; anything else as it is."""
        if isinstance(value, (list, tuple)):
            return [self._pairs(each) for each in value]
        if isinstance(value, complex):
            return Pair(value.real, value.imag)
        if not _is_complex(value):
            return value
        tensor, parts = self._parts.get(id(value), (None, None))
        if parts is not None and tensor is not None and tensor() is value:
            return parts
        if value.device.type == "meta" or value.numel() != 1:
            raise Unknown
        with _disable_current_modes():
            number = value.item()
        return Pair(number.real, number.imag)

    def _joined(self, parts: Pair) -> torch.Tensor:
        shape = broadcast([tuple(part.shape) for part in parts])
        real, imag = parts.real.expand(shape), parts.imag.expand(shape)
        if real.dtype not in COMPLEX:
            raise Unknown
        with _disable_current_modes(), torch.inference_mode(mode=False):
            joined = torch.empty(real.shape, dtype=COMPLEX[real.dtype], device="meta")
        return self.track(joined, Pair(real, imag))


def _is_complex(value: Any) -> bool:
    return value.is_complex() if isinstance(value, torch.Tensor) else isinstance(value, complex)


def _flat(values: Any) -> list[Any]:
    return [leaf for each in values for leaf in _flat(each)] if isinstance(values, (list, tuple)) else [values]


def _pair(value: Any) -> Pair:
    """A real operand as PyTorch promotes it: with zero for its imaginary part."""
    return value if isinstance(value, Pair) else Pair(value, 0.0)


def _part(value: Any, which: int) -> Any:
    """One part of all complex values in an argument; the zero of a real tensor beside them."""
    if isinstance(value, Pair):
        return value[which]
    if isinstance(value, list):
        return [_part(each, which) for each in value]
    if which and isinstance(value, torch.Tensor) and value.is_floating_point():
        return torch.zeros_like(value)
    return REAL.get(value, value) if isinstance(value, torch.dtype) else value


def _by_parts(func: Any, *args: Any, **named: Any) -> Any:
    """The same operation on the real and on the imaginary parts: views, sums, and what moves elements."""
    if named.get("dtype") not in REAL and isinstance(named.get("dtype"), torch.dtype):
        return func(*(_part(each, 0) for each in args), **named)  # PyTorch drops the imaginary part
    real, imag = (
        func(*(_part(each, which) for each in args), **{name: _part(value, which) for name, value in named.items()})
        for which in (0, 1)
    )
    return [Pair(*pair) for pair in zip(real, imag)] if isinstance(real, (list, tuple)) else Pair(real, imag)


def _add(func: Any, a: Any, b: Any, *, alpha: Any = 1) -> Pair:
    (ar, ai), (br, bi) = _pair(a), _times(_pair(b), _pair(alpha))  # also by 1: Inf becomes Inf + NaN i
    return Pair(ar + br, ai + bi) if func in _ADDS else Pair(ar - br, ai - bi)


def _times(a: Pair, b: Pair) -> Pair:
    return Pair(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)


def _mul(func: Any, a: Any, b: Any) -> Pair:
    return _times(_pair(a), _pair(b))


def _div(func: Any, a: Any, b: Any) -> Pair:
    """By the smaller part over the larger one, as PyTorch divides (Smith's method)."""
    (ar, ai), (br, bi) = _pair(a), _pair(b)
    br, bi = (each if isinstance(each, torch.Tensor) else torch.full_like(ar, each) for each in (br, bi))
    steep = br.abs() < bi.abs()
    large, small = torch.where(steep, bi, br), torch.where(steep, br, bi)
    ratio = small / large
    scale = 1 / (large + small * ratio)
    real = torch.where(steep, ar * ratio + ai, ar + ai * ratio) * scale
    imag = torch.where(steep, ai * ratio - ar, ai - ar * ratio) * scale
    nothing = (br == 0) & (bi == 0)
    return Pair(torch.where(nothing, ar / br.abs(), real), torch.where(nothing, ai / br.abs(), imag))


def _product(func: Any, a: Any, b: Any) -> Pair:
    (ar, ai), (br, bi) = ((_part(each, 0), _part(each, 1)) for each in (a, b))
    return Pair(func(ar, br) - func(ai, bi), func(ar, bi) + func(ai, br))


def _exp(func: Any, z: Pair) -> Pair:
    size = z.real.exp()
    return Pair(size * z.imag.cos(), size * z.imag.sin())


def _reshaped(func: Any, z: Pair, shape: Sequence[int], *_: Any) -> Pair:
    return Pair(z.real.reshape(shape), z.imag.reshape(shape))


def _interleaved(func: Any, z: Pair) -> torch.Tensor:
    with torch.inference_mode(mode=False):  # it stands for a view of a tensor that is made outside of that mode
        return torch.stack([z.real, z.imag], -1)


def _scaled(value: torch.Tensor, length: int, normalization: int) -> torch.Tensor:
    """By PyTorch's number for the scale: 0 none, 1 by the root of the length, 2 by the length."""
    return value if not normalization else value * length ** (-0.5 if normalization == 1 else -1.0)


def _real_to_complex(func: Any, x: torch.Tensor, dims: Sequence[int], normalization: int, onesided: bool) -> Pair:
    """Along the last of the dimensions real numbers; what comes of them is complex along the others."""
    dim, others = dims[-1], [dim % x.dim() for dim in dims[:-1]]
    length = x.shape[dim]
    wanted = length // 2 + 1 if onesided else length
    z = _transformed(Pair(x, None), dim, length, -1, wanted, normalization)
    return _complex_to_complex(func, z, others, normalization, True)


def _complex_to_complex(func: Any, z: Pair, dims: Sequence[int], normalization: int, forward: bool) -> Pair:
    for dim in dims:
        length = z.real.shape[dim]
        z = _transformed(z, dim, length, -1 if forward else 1, length, normalization)
    return z


def _complex_to_real(func: Any, z: Pair, dims: Sequence[int], normalization: int, length: int) -> torch.Tensor:
    """Of half a spectrum along the last of the dimensions."""
    dim, others = dims[-1], list(dims[:-1])
    z = _complex_to_complex(func, z, others, normalization, False)
    real, imag = (part.movedim(dim, -1)[..., : length // 2 + 1] for part in z)
    return _scaled(real_sums(real, imag, length), length, normalization).movedim(-1, dim)


def _transformed(z: Pair, dim: int, length: int, sign: int, wanted: int, normalization: int) -> Pair:
    real, imag = z.real.movedim(dim, -1), None if z.imag is None else z.imag.movedim(dim, -1)
    found = transform((real, imag), length, sign, wanted)
    return Pair(*(part if part is None else _scaled(part, length, normalization).movedim(-1, dim) for part in found))


_ADDS = frozenset({aten.add.Tensor, aten.add.Scalar})
_MAKERS = frozenset({aten.view_as_complex.default, aten.complex.default, aten.polar.default, aten._fft_r2c.default})
_RULES: dict[Any, Callable[..., Any]] = {
    aten.view_as_complex.default: lambda func, x: Pair(x.select(-1, 0), x.select(-1, 1)),
    aten.complex.default: lambda func, real, imag: Pair(real, imag),
    aten.polar.default: lambda func, size, angle: Pair(size * angle.cos(), size * angle.sin()),
    aten.view_as_real.default: _interleaved,
    aten._conj.default: lambda func, z: Pair(z.real, -z.imag),
    aten._conj_physical.default: lambda func, z: Pair(z.real, -z.imag),
    aten.conj_physical.default: lambda func, z: Pair(z.real, -z.imag),
    aten.neg.default: lambda func, z: Pair(-z.real, -z.imag),
    aten.abs.default: lambda func, z: torch.hypot(z.real, z.imag),
    aten.angle.default: lambda func, z: torch.atan2(z.imag, z.real),
    aten.exp.default: _exp,
    aten.reciprocal.default: lambda func, z: _div(func, Pair(torch.ones_like(z.real), torch.zeros_like(z.real)), z),
    aten.clone.default: lambda func, z, **named: z,
    aten._fft_r2c.default: _real_to_complex,
    aten._fft_c2c.default: _complex_to_complex,
    aten._fft_c2r.default: _complex_to_real,
    **dict.fromkeys((aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default), _reshaped),
    **dict.fromkeys((*_ADDS, aten.sub.Tensor, aten.sub.Scalar), _add),
    **dict.fromkeys((aten.mul.Tensor, aten.mul.Scalar), _mul),
    **dict.fromkeys((aten.div.Tensor, aten.div.Scalar), _div),
    **dict.fromkeys((aten.mm.default, aten.bmm.default), _product),
}
_LINEAR = frozenset(
    getattr(aten, name)
    for name in (
        "unsqueeze squeeze expand permute transpose t alias slice select split split_with_sizes unbind cat stack "
        "flip roll repeat index index_select gather embedding where constant_pad_nd sum mean cumsum _to_copy "
        "zeros zeros_like"
    ).split()
)
"""What does the same to both parts, whatever its overload."""
