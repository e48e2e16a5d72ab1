"""The product of two matrices as tensor cores compute it, from bits to bits: every type of `mma` and `wgmma`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.emitters.formats import FORMATS
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.ptx.syntax import bits_of
from cutesmith.emulator.tensor_cores import arithmetic
from cutesmith.emulator.tensor_cores.native_sums import fused_multiply_add

FAMILIES = {
    "f16": "f16", "bf16": "bf16", "tf32": "tf32", "e4m3": "fp8", "e5m2": "fp8", "f64": "f64",
    "s8": "8-bit", "u8": "8-bit", "s4": "4-bit", "u4": "4-bit", "b1": "b1",
}  # fmt: skip
"""Which arithmetic a type of A and B has: a floating-point format, "fp8", or integers by width."""


@dataclass(frozen=True)
class Multiplication:
    """D = A B + C: rows and depth, types of A, B and of C and D, `operation` "xor" or "and" of single bits, columns.

    `sparse`: A stores half of its elements.
    """

    m: int
    k: int
    a: str
    b: str
    result: str
    satfinite: bool = False
    operation: str = ""
    n: int = 8
    sparse: bool = False

    @property
    def stored(self) -> int:
        """How many elements of a row of A are stored."""
        return self.k // 2 if self.sparse else self.k

    @property
    def family(self) -> str:
        """Which arithmetic: a floating-point format, "fp8", or integers by width."""
        return FAMILIES[self.a]


def compute(form: Multiplication, a: Array, b: Array, c: Array, core: arithmetic.TensorCore) -> Array:
    """Bits of D (w, m, n) from the bits of A (w, m, k), B (w, k, n), C (w, m, n), as a tensor core rounds."""
    if form.family == "f64":  # a chain of fused multiply-adds over k
        for index in range(a.shape[2]):
            left, right = np.broadcast_arrays(a[:, :, index, None], b[:, index, None])
            sums = fused_multiply_add(*(bits.view(np.float64) for bits in (left, right, c))).view(np.uint64)
            c = _with_nan(sums, (left, c, right)) if _is_nan(sums).any() else sums
        return c
    if form.result == "s32":
        return _multiply_integers(form, a, b, c)
    inputs, result = (FORMATS[form.a], FORMATS[form.b]), FORMATS[form.result]
    return arithmetic.multiply(a, b, c, inputs, result, core)


def _with_nan(sums: Array, sources: tuple[Array, ...]) -> Array:
    """A NaN is handed on quieted, that of the last source first; one that arises is 0xfff8 << 48."""
    sums = np.where(_is_nan(sums), np.uint64(0xFFF8 << 48), sums)
    for source in sources:
        sums = np.where(_is_nan(source), source | np.uint64(1 << 51), sums)
    return sums


def _is_nan(bits: Array) -> Array:
    nan: Array = np.isnan(bits.view(np.float64))
    return nan


def _multiply_integers(form: Multiplication, a: Array, b: Array, c: Array) -> Array:
    """Exact sums (float32 holds them: at most 64 products below 2^16), then wrapped or clamped to 32 bits."""
    left, right = (_signed(bits, name).astype(np.float32) for bits, name in ((a, form.a), (b, form.b)))
    products = left @ right
    if form.operation == "xor":
        products = left.sum(axis=2)[:, :, None] + right.sum(axis=1)[:, None] - 2 * products
    total = c.astype(np.uint32).view(np.int32).astype(np.int64) + products.astype(np.int64)
    if form.satfinite:
        total = total.clip(-(2**31), 2**31 - 1)
    return total.view(np.uint64) & np.uint64(0xFFFF_FFFF)


def _signed(bits: Array, name: str) -> Array:
    values = bits.astype(np.int32)
    width = bits_of(name)
    return values - ((values >> (width - 1)) << width) if name.startswith("s") else values
