"""With which instructions a product is computed, and what they ask of a tile."""

from __future__ import annotations

import enum

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.contraction.analysis import ContractionProblem
from cutesmith.patterns.graph.dtypes import FLOATS8


class Arithmetic(enum.Enum):
    """The instructions of the main loop.

    HALF: mma.sync of fp16 or bf16. TF32: of factors rounded to tf32, where PyTorch's flags allow that. TF32_THRICE:
    three products of a number's upper and lower halves, as exact as float32 itself; on Hopper and Blackwell six of
    bfloat16 parts. FLOAT8: wgmma or tcgen05 of float8, whose sums the function allows. FMA: one multiplication and one
    addition a thread, for float64 and integers.
    """

    HALF = "half"
    TF32 = "tf32"
    TF32_THRICE = "tf32x3"
    FLOAT8 = "float8"
    FMA = "fma"


def arithmetic_of(problem: ContractionProblem) -> Arithmetic:
    """The instructions for a problem's dtypes."""
    dtypes = {problem.a.dtype, problem.b.dtype}
    if dtypes <= set(FLOATS8):
        return Arithmetic.FLOAT8
    if len(dtypes) > 1:
        message = f"{problem.product.where} multiplies {' by '.join(sorted(dtypes))}"
        raise UnmatchedError(message, operation=problem.product.where)
    (dtype,) = dtypes
    if dtype in ("float16", "bfloat16"):
        return Arithmetic.HALF
    if dtype == "float32":
        return Arithmetic.TF32 if problem.tf32 else Arithmetic.TF32_THRICE
    return Arithmetic.FMA
