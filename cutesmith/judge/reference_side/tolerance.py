"""What an output may be off by: relative and absolute numbers of each type, and what is excused beside them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from cutesmith.judge.reference_side.rounded_factors import RoundedFactors

FLUSHED = 2.0**-126  # float32 arithmetic on a GPU may flush subnormal numbers to zero


@dataclass(frozen=True)
class Tolerance:
    """Relative and absolute tolerance; `scaled` says that `atol` is meant relative to the reference's magnitude.

    `rms` bounds the root mean square of the error over that of the reference: it tells sloppy accumulation, which is
    wrong everywhere a little, from single roundings. None where the user set the tolerances. `derived` says that no one
    chose the inputs, so that they may be too ill-conditioned for any result in this dtype; `native_error` is then what
    PyTorch was seen to be off by on inputs next to them (see `native_excess`), of integers in how many. `moved` is how
    far roundings of the inputs alone move the result (`sensitivity.py`): `BACKWARD` times that passes. Without
    `nan_decides` any value passes where the exact result and PyTorch's are NaN, and any special one where PyTorch's is
    Inf. `room` is what each element of the flat result may be off by in any case (`sensitivity.room_of`). `may_be_nan`
    says of each element of the result whether NaN passes too (`zero_products.open_elements`), `reached` of an integer
    one whether roundings give it (`sensitivity.reached`). `rounded` is what rounded factors do to the result.
    `units` in the last place of each element are allowed beside all this, for a type so coarse that its own rounding is
    more than what the arithmetic costs.
    """

    rtol: float
    atol: float
    rms: float | None = None
    scaled: bool = True
    units: float = 0.0
    derived: bool = False
    native_error: float = 0.0
    moved: float = 0.0
    nan_decides: bool = True
    room: torch.Tensor | None = field(default=None, compare=False)
    may_be_nan: torch.Tensor | None = field(default=None, compare=False)
    reached: torch.Tensor | None = field(default=None, compare=False)
    rounded: RoundedFactors | None = field(default=None, compare=False)


# About two units in the last place of the output type: one rounding of a float32 result passes, a chain of roundings
# or an accumulation in the output type does not. float32 leaves room for the hardware's approximate exp2, rsqrt, tanh.
DEFAULTS = {
    torch.float64: Tolerance(1e-9, 1e-10, 1e-9),
    torch.float32: Tolerance(1e-4, 2e-5, 2e-5),
    torch.float16: Tolerance(2**-9, 2**-12, 2**-10),
    torch.bfloat16: Tolerance(2**-6.5, 2**-9, 2**-7),
}
# Rounding both factors to 11 bits moves a sum of products by 2**-11.7 of its size in the root mean square, five times
# that at its worst of a million elements. What is added to it, or cut off, may leave a fourth of the size; bfloat16
# factors, eight times as coarse, do not pass.
TF32 = Tolerance(2**-8, 2**-7, 2**-9)
# The float8 types: what a bfloat16 result may be off by of each value, and one unit in the last place of it, which goes
# down to 2**-9 beside 32 next to the largest number. A larger share of the magnitude would hide small numbers.
FLOAT8 = replace(DEFAULTS[torch.bfloat16], atol=2**-12, rms=2**-3, units=1.0)
NATIVE_SLACK = 2.0
NATIVE_BOUND = 8.0  # times rtol: PyTorch being far off excuses no more than this
ROUNDINGS = 4.0  # units in the last place: what a few roundings make of a result that hardly varies
BACKWARD = 4.0  # the error of float32 sums in any sensible order, in what one rounding of each term does
ROUNDED_ROOM = 8.0  # times the farthest that tf32 in convolutions moved an element, or its neighbours, in four draws
HALVES_ROOM = 4.0  # the same for products with 16-bit numbers; factors of float8 are off by sixteen times as much
ROUNDED_SLACK = 1.25  # times the root mean square; a second rounding as large, of a product that may not, makes 1.41
FEW_ROUNDED = 4.0  # of n elements another draw may have 1 + 4 / sqrt(n) times the root mean square
DERIVED_SLACK = 4.0  # on a derived case that PyTorch itself gets wrong: another order of the same sums may double it
NO_DIGIT = 0.5  # an error in the root mean square of this share of the reference leaves not one binary digit right


def flushed_below(dtype: torch.dtype) -> float:
    """The number below which arithmetic of a type may give 0; 0 for types whose subnormal numbers a GPU keeps."""
    return FLUSHED if dtype in (torch.float32, torch.bfloat16) else 0.0


def tolerance_for(dtype: torch.dtype, rtol: float | None, atol: float | None, *, tf32: bool = False) -> Tolerance:
    """The tolerance of a dtype with the user's numbers, where given, in place of the defaults.

    `tf32`: float32 results come of factors that were rounded to tf32.
    """
    default = TF32 if tf32 and dtype == torch.float32 else DEFAULTS.get(dtype, FLOAT8)
    if rtol is None and atol is None:
        return default
    return Tolerance(
        default.rtol if rtol is None else rtol, default.atol if atol is None else atol, None, scaled=atol is None
    )
