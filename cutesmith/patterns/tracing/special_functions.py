"""Bessel functions, erfcx, polygamma and orthogonal polynomials as sums and products that every pattern takes.

A smooth function is its Chebyshev series on each of some intervals, by as many terms as the dtype has digits for: the
coefficients are those of PyTorch's own function in float64 at Chebyshev's nodes. What 16-bit floats are given is
computed in float32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

Values = torch.Tensor
MOST_STEPS = 256
"""Of a recurrence, which is unrolled."""


def _in_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of float32 or float64; its result has the type that PyTorch's has."""

    def computed(x: Values, *more: Any) -> Any:
        result = x.dtype if x.is_floating_point() else torch.get_default_dtype()
        found = function(x.to(torch.float64 if result == torch.float64 else torch.float32), *more)
        return found if found is NotImplemented else found.to(result)

    return computed


@functools.cache
def _coefficients(name: str, terms: int) -> list[float]:
    """Those of the Chebyshev series on -1 … 1 of a function in `_SMOOTH`."""
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.inference_mode(mode=False):
        angles = (torch.arange(terms, dtype=torch.float64) + 0.5) * (math.pi / terms)
        values = _SMOOTH[name](angles.cos())
        found = (values[:, None] * (angles[:, None] * torch.arange(terms)).cos()).sum(0) * (2 / terms)
        return [float(found[0]) / 2, *found[1:].tolist()]


def _series(name: str, t: Values, terms: tuple[int, int]) -> Values:
    """The function's value at t in -1 … 1 by Clenshaw's recurrence; `terms` for float32 and for float64."""
    first, *others = _coefficients(name, terms[t.dtype == torch.float64])
    later, now = torch.zeros_like(t), torch.zeros_like(t)
    for coefficient in reversed(others):
        later, now = now, 2 * t * now - later + coefficient
    return t * now - later + first


def _amplitude(order: int, part: int, t: Values) -> Values:
    """Of the cosine (`part` 0) and the sine in a Bessel function at 16 / (t + 1)."""
    x = 16 / (t + 1)
    j, y = (getattr(torch.special, f"bessel_{kind}{order}")(x) for kind in "jy")
    phase = x - math.pi * (0.25 + 0.5 * order)
    rotated: Values = (j * phase.cos() + y * phase.sin(), y * phase.cos() - j * phase.sin())[part]
    scale: Values = (x * (math.pi / 2)).sqrt()
    return rotated * scale


def _by_powers(order: int, t: Values) -> Values:
    """J_0(x), or J_1(x) / x, for x² = 32 (t + 1): PyTorch's own is off by 2e-7 there, in float64, too."""
    quarter: Values = 8 * (t + 1)
    found = torch.zeros_like(t)
    for k in reversed(range(30)):
        found = found * -quarter / ((k + 1) * (k + 1 + order)) + 1
    return found / float(2**order)


_SMOOTH: dict[str, Callable[[Values], Values]] = {
    "i0e, near": lambda t: torch.special.i0e(4 * (t + 1)),
    "i0e, far": lambda t: torch.special.i0e(16 / (t + 1)) * (16 / (t + 1)).sqrt(),
    "i1e, near": lambda t: torch.special.i1e(4 * (t + 1)) / (4 * (t + 1)),
    "i1e, far": lambda t: torch.special.i1e(16 / (t + 1)) * (16 / (t + 1)).sqrt(),
    "j0, near": functools.partial(_by_powers, 0),
    "j1, near": functools.partial(_by_powers, 1),
    "j0, cosine": functools.partial(_amplitude, 0, 0),
    "j0, sine": functools.partial(_amplitude, 0, 1),
    "j1, cosine": functools.partial(_amplitude, 1, 0),
    "j1, sine": functools.partial(_amplitude, 1, 1),
    "erfcx": lambda t: torch.special.erfcx(8 / (t + 1) - 4) * 2 / (t + 1),
}


def _scaled_i(order: int, x: Values) -> Values:
    """I_0 or I_1 times exp(-|x|)."""
    size = x.abs()
    near = _series(f"i{order}e, near", size.clamp(max=8) / 4 - 1, (20, 34))
    far = _series(f"i{order}e, far", 16 / size.clamp(min=8) - 1, (10, 28)) * size.clamp(min=8).rsqrt()
    return torch.where(size <= 8, near * x, far * x.sign()) if order else torch.where(size <= 8, near, far)


def _bessel(order: int, x: Values) -> Any:
    """J_0 or J_1 of float32: its series in x² up to 8, an amplitude and a phase beyond (A&S 9.2.5)."""
    if x.dtype == torch.float64:
        return NotImplemented
    size = x.abs()
    near = _series(f"j{order}, near", size.clamp(max=8).square() / 32 - 1, (16, 16))
    far = size.clamp(min=8)
    phase = far - math.pi * (0.25 + 0.5 * order)
    cosine, sine = (_series(f"j{order}, {part}", 16 / far - 1, (10, 10)) for part in ("cosine", "sine"))
    beyond = (cosine * phase.cos() - sine * phase.sin()) * (far * (math.pi / 2)).rsqrt()
    return torch.where(size <= 8, near * x, beyond * x.sign()) if order else torch.where(size <= 8, near, beyond)


def _erfcx(x: Values) -> Values:
    """exp(x²) erfc(x)."""
    size = x.abs()
    scaled = _series("erfcx", 8 / (size + 4) - 1, (20, 40)) * 4 / (size + 4)
    return torch.where(x < 0, 2 * x.square().exp() - scaled, scaled)


def _polygamma(order: int, x: Values) -> Values:
    """The derivative of digamma of this order: reflected below 0.5, summed up to 10, then its series (A&S 6.4.11)."""
    if order == 0:
        return torch.digamma(x)
    is_low = x < 0.5
    z = torch.where(is_low, 1 - x, x)
    total = torch.zeros_like(x)
    for _ in range(10):
        is_small = z < 10
        total = torch.where(is_small, total + z ** -(order + 1), total)
        z = torch.where(is_small, z + 1, z)
    total = math.factorial(order) * total + math.factorial(order - 1) * z**-order
    total = total + math.factorial(order) / 2 * z ** -(order + 1)
    for k, bernoulli in enumerate((1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6), 1):
        factor = bernoulli * math.factorial(2 * k + order - 1) / math.factorial(2 * k)
        total = total + factor * z ** -(order + 2 * k)
    found = total if order % 2 else -total
    reflected = (found if order % 2 == 0 else -found) - _of_cotangent(order, x)
    found = torch.where(is_low, reflected, found)
    return torch.where((x <= 0) & (x == x.round()), math.inf if order % 2 else -math.inf, found)


def _of_cotangent(order: int, x: Values) -> Values:
    """The derivative of pi cot(pi x) of this order: a polynomial of the cotangent."""
    polynomial = [0.0, 1.0]
    for _ in range(order):
        slope = [power * factor for power, factor in enumerate(polynomial)][1:]
        polynomial = [-(a + b) for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope], strict=True)]
    angle = (x - x.round()) * math.pi
    cotangent = 1 / torch.tan(angle)
    value = torch.zeros_like(x)
    for factor in reversed(polynomial):
        value = value * cotangent + factor
    return value * math.pi ** (order + 1)


def _polynomial(kind: str, x: Values, degree: int) -> Any:
    """An orthogonal polynomial by its recurrence from the two first ones."""
    if not isinstance(degree, int) or degree > MOST_STEPS:
        return NotImplemented
    before, now = torch.ones_like(x), 1 - x if kind == "laguerre" else 2 * x if kind in ("u", "h") else x
    if degree < 1:
        return before if degree == 0 else torch.zeros_like(x)
    for k in range(1, degree):
        before, now = now, _NEXT[kind](k, x, before, now)
    return now


_NEXT: dict[str, Callable[[int, Values, Values, Values], Values]] = {
    "t": lambda k, x, before, now: 2 * x * now - before,
    "u": lambda k, x, before, now: 2 * x * now - before,
    "h": lambda k, x, before, now: 2 * x * now - 2 * k * before,
    "he": lambda k, x, before, now: x * now - k * before,
    "laguerre": lambda k, x, before, now: ((2 * k + 1 - x) * now - k * before) / (k + 1),
    "legendre": lambda k, x, before, now: ((2 * k + 1) * x * now - k * before) / (k + 1),
}
"""The polynomial of degree k + 1 by those of k - 1 and k."""
_NAMES = {
    "t": "chebyshev_polynomial_t",
    "u": "chebyshev_polynomial_u",
    "h": "hermite_polynomial_h",
    "he": "hermite_polynomial_he",
    "laguerre": "laguerre_polynomial_l",
    "legendre": "legendre_polynomial_p",
}

aten = torch.ops.aten
DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.i0.default: _in_floats(lambda x: _scaled_i(0, x) * x.abs().exp()),
    aten.special_i0e.default: _in_floats(functools.partial(_scaled_i, 0)),
    aten.special_i1.default: _in_floats(lambda x: _scaled_i(1, x) * x.abs().exp()),
    aten.special_i1e.default: _in_floats(functools.partial(_scaled_i, 1)),
    aten.special_modified_bessel_i0.default: _in_floats(lambda x: _scaled_i(0, x) * x.abs().exp()),
    aten.special_modified_bessel_i1.default: _in_floats(lambda x: _scaled_i(1, x) * x.abs().exp()),
    aten.special_bessel_j0.default: _in_floats(functools.partial(_bessel, 0)),
    aten.special_bessel_j1.default: _in_floats(functools.partial(_bessel, 1)),
    aten.special_erfcx.default: _in_floats(_erfcx),
    aten.polygamma.default: lambda order, x: _in_floats(lambda x: _polygamma(order, x))(x),
    **{
        getattr(aten, f"special_{name}").n_scalar: _in_floats(functools.partial(_polynomial, kind))
        for kind, name in _NAMES.items()
    },
}
