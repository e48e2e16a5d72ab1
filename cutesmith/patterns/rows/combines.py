"""Device functions that combine two partial states of a row reduction, as source text."""

from __future__ import annotations

from cutesmith.patterns.rows.parts import Visit

OPERATORS = {"operator.add": "+", "operator.mul": "*", "operator.or_": "|", "operator.and_": "&"}
"""Functions of Python that combine two partial states, and how they are written between two values."""

COMBINES = {
    "shift_of": '''
@cute.jit
def shift_of(maximum: Float32) -> Float32:
    """What to subtract before exp: the maximum, or 0 where all is -inf (exp gives 0 there, not NaN)."""
    return maximum if maximum > Float32(-math.inf) else Float32(0.0)
''',
    "pivot_of": '''
@cute.jit
def pivot_of(total: Float32, count: Float32) -> Float32:
    """total / count where that is finite, else 0: deviations are taken from it, and Inf and NaN must show in those."""
    pivot = total / count
    return pivot if cute.math.absf(pivot) < Float32(math.inf) else Float32(0.0)
''',
    "squared_deviations": '''
def squared_deviations(deviation, residual, step):
    """Squared deviations from the mean, from those from a pivot that lies `step` below it; NaN stays."""
    return cute.arch.fmax(deviation - residual * step, Float32(0.0), nan=True)
''',
    "count_here": '''
@cute.jit
def count_here(b, place: Int32, plan: cutlass.Constexpr) -> Float32:
    """How many elements of the row this thread holds in its block `b` of it."""
    count = Float32(plan.chunks * WIDTH)
    if const_expr(not plan.even):
        held = Int32(0)
        for c in range_constexpr(plan.chunks):
            inside = (b * plan.chunks + c) * SHARERS + place < STEPS
            held = held + (Int32(WIDTH) if inside else Int32(0))
        count = held.to(Float32)
    return count
''',
    "combine_max_f32": "combine_max_f32 = functools.partial(cute.arch.fmax, nan=True)  # NaN wins, as in torch.amax",
    "combine_min_f32": "combine_min_f32 = functools.partial(cute.arch.fmin, nan=True)  # NaN wins, as in torch.amin",
    "combine_max_f64": "combine_max_f64 = functools.partial(cute.math.max, propagate_nan=True)",
    "combine_min_f64": "combine_min_f64 = functools.partial(cute.math.min, propagate_nan=True)",
    "combine_max_int": """
@cute.jit
def combine_max_int(a, b):
    return a if a > b else b
""",
    "combine_min_int": """
@cute.jit
def combine_min_int(a, b):
    return a if a < b else b
""",
    "combine_argmax": '''
@cute.jit
def combine_argmax(a, at_a, b, at_b):
    """The larger value and its place; the earlier place on a tie; NaN is larger than any number."""
    larger = (b > a) | ((b != b) & (a == a))
    tied = (b == a) | ((b != b) & (a != a))
    better = larger | (tied & (at_b < at_a))
    return (b if better else a), (at_b if better else at_a)
''',
    "combine_argmin": '''
@cute.jit
def combine_argmin(a, at_a, b, at_b):
    """The smaller value and its place; the earlier place on a tie; NaN is smaller than any number."""
    smaller = (b < a) | ((b != b) & (a == a))
    tied = (b == a) | ((b != b) & (a != a))
    better = smaller | (tied & (at_b < at_a))
    return (b if better else a), (at_b if better else at_a)
''',
}
"""Device functions that combine two partial states of a reduction, as source text; WIDTH, … are those of a `Visit`."""


def combine_source(name: str, visit: Visit) -> str:
    """The source of a device function for kernels that visit their rows in this way."""
    source = COMBINES[name]
    for word, code in (("WIDTH", visit.width), ("SHARERS", visit.sharers), ("STEPS", visit.steps)):
        source = source.replace(word, code)
    return source
