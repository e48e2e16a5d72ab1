"""Cases of `bench_patterns.py` that say what a function costs: sums of eight, of numbers about a half.

`patterns/graph/instructions.py` has what they took beside the time of a launch, as instructions for an element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from pattern_cases import Case, single
from races import Tensor

Values = torch.Tensor

OF_ONE = (
    "exp exp2 log log2 log10 log1p expm1 sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh atanh erf erfc "
    "sigmoid reciprocal sign"
).split()
OF_TWO: dict[str, Callable[[Values, Values], Values]] = {
    "div": torch.div,
    "floor_div": torch.floor_divide,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "pow": lambda x, y: torch.pow(y, x),
    "atan2": torch.atan2,
}
OTHERS: dict[str, Callable[[Values], Values]] = {
    "mul": lambda y: y * y,
    "acosh": lambda y: torch.acosh(y + 1),
    "normcdf": torch.special.ndtr,
}
ROUNDED = "mul exp exp2 log log2 log10 sqrt sin cos tanh sigmoid reciprocal normcdf div pow".split()
"""Those of which results of 16 bits are timed, too."""


def summed(function: Callable[[Values, Values], Values], x: Values) -> Values:
    """Of eight numbers near each."""
    total = x * 0
    for at in range(8):
        total = total + function(x, x + (0.5 + 0.01 * at))
    return total


def _of_one() -> dict[str, Callable[[Values], Values]]:
    return {name: getattr(torch, name) for name in OF_ONE}


def _of_second(function: Callable[[Values], Values], _x: Values, y: Values) -> Values:
    return function(y)


def functions() -> Iterator[Case]:
    """Of float32, and of bfloat16."""
    known = OF_TWO | {name: partial(_of_second, of) for name, of in (OTHERS | _of_one()).items()}
    for name, function in known.items():
        for dtype in (single, torch.bfloat16) if name in ROUNDED else (single,):
            x = Tensor((4096, 4096), dtype, 0.05)
            named = f"{name} {str(dtype).removeprefix('torch.')}"
            yield Case(named, partial(summed, function), (x,), 1, tolerance=0.05 if dtype != single else 1e-4)


PARTS = (functions,)
