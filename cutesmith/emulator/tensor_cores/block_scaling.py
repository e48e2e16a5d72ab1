"""Products of `tcgen05.mma`, from bits to bits, with and without scale factors.

The model is the literature's (Xie et al., "MMA-Sim", 2025): products and D are cut 25 bits below the largest exponent
and summed exactly, then truncated to float32 or rounded to float16. A factor of UE8M0 adds to the exponents. With
packed e2m1, 16 products are summed exactly, then scaled; these sums and D are cut 35 bits below the largest exponent of
the scale factors and of D. That holds for K = 64; K = 96 is taken to have six such sums instead of four. It was not
compared with a GPU here.
"""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.emitters.formats import E2M1, E4M3, F32, Format
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.tensor_cores import arithmetic
from cutesmith.emulator.tensor_cores.instruction_descriptors import Product, result_format
from cutesmith.emulator.tensor_cores.multiplication import Multiplication, compute
from cutesmith.emulator.tensor_cores.native_sums import NO_EXPONENT

_CORE = arithmetic.tensor_core_of(100)
_EXACT = 16  # products of e2m1 that are summed without a cut
_FINE_FRACTION = 35
_UNKNOWN = 0xFF  # NaN of UE8M0


def multiply(
    product: Product, a: Array, b: Array, d: Array, scales: tuple[Array, Array] | None, chosen: Array | None = None
) -> Array:
    """uint32 bits of D (m, n) from bits of A (m, depth), B (n, k) and D (m, n).

    `scales`: the bytes of A's (m, depth / block) and of B's (n, depth / block). `chosen`: of a sparse A, the columns of
    its stored elements (m, depth): each row has its own B.
    """
    if chosen is not None:
        own = [(slice(row, row + 1), np.ascontiguousarray(b[:, columns])) for row, columns in enumerate(chosen)]
        return np.concatenate(
            [
                multiply(product, a[row], part, d[row], (scales[0][row], scales[1]) if scales else None)
                for row, part in own
            ]
        )
    if isinstance(product.a, str) or isinstance(product.b, str):
        assert isinstance(product.a, str) and isinstance(product.b, str)
        form = Multiplication(product.m, product.depth, product.a, product.b, "s32", product.saturate, n=product.n)
        exact: Array = compute(form, a[None], b.T[None], d[None], _CORE)[0].astype(np.uint32)
        return exact
    if product.negative:
        a = a ^ a.dtype.type(product.a.sign << (arithmetic.container(product.a) - product.a.bits))
    if scales is None:
        formats, across = (product.a, product.b), np.ascontiguousarray(b.T)[None]
        plain: Array = arithmetic.multiply(a[None], across, d[None], formats, result_format(product), _CORE)[0]
        return plain
    with np.errstate(invalid="ignore", over="ignore"):
        left, right = arithmetic.decode(product.a, a), arithmetic.decode(product.b, b)
        factors = [scale_factors(part, fine=product.fine) for part in scales]
        if product.container < 8:
            return _by_blocks(product, left[0], right[0], d, factors)
        scaled = [
            (values[0] * factor[0], np.where(values[1] == NO_EXPONENT, NO_EXPONENT, values[1] + factor[1]))
            for values, factor in zip((left, right), factors, strict=True)
        ]
        pairs = [(part[0][None], part[1].astype(np.int16)[None]) for part in scaled]
        columns = [np.ascontiguousarray(part.swapaxes(1, 2)) for part in pairs[1]]
        given = pairs[0], (columns[0], columns[1])
        found: Array = arithmetic.sums(*given, d[None], result_format(product), product.depth, _CORE.fraction)[0]
        return found


def unpadded(held: Array, kind: Format) -> Array:
    """uint8 bit patterns of a format of up to 8 bits from the 8 bits that each takes: of e2m1 those from bit 2 on."""
    start = held.dtype.type(2 if kind is E2M1 else 0)
    found: Array = (held >> start & held.dtype.type((1 << kind.bits) - 1)).astype(np.uint8)
    return found


def scale_factors(bits: Array, *, fine: bool) -> tuple[Array, Array]:
    """Values and exponents of scale factors: UE4M3 where `fine`, else powers of two."""
    if fine:
        values, exponents = arithmetic.decode(E4M3, bits & np.uint8(0x7F))
        return values, exponents.astype(np.int32)
    exponents = bits.astype(np.int32) - 127
    return np.where(bits == _UNKNOWN, np.nan, np.ldexp(1.0, exponents)), exponents


def _by_blocks(product: Product, a: Array, b: Array, d: Array, factors: list[tuple[Array, Array]]) -> Array:
    """Exact sums of 16 products, scaled, then one cut and sum."""
    (left, left_exponents), (right, right_exponents) = factors
    per = product.form.block // _EXACT
    held, exponent = arithmetic.decode(F32, d)
    terms, exponents = [], []
    for index in range(product.depth // _EXACT):
        part = slice(index * _EXACT, (index + 1) * _EXACT)
        scale = index // per
        terms.append(a[:, part] @ b[:, part].T * left[:, scale, None] * right[None, :, scale])
        exponents.append(left_exponents[:, scale, None] + right_exponents[None, :, scale])
    largest = np.maximum(np.max(exponents, axis=0), exponent.astype(np.int32))
    unit = _FINE_FRACTION - largest
    total = np.trunc(np.ldexp(held, unit))
    for term in terms:
        total = total + np.trunc(np.ldexp(term, unit))
    return arithmetic.truncated(np.ldexp(total, -unit))
