"""What `contraction_sm100.py.j2` takes: layouts in shared memory, and how each part is loaded and stored."""

from __future__ import annotations

from cutesmith.patterns.contraction.analysis import ContractionProblem
from cutesmith.patterns.contraction.arithmetic import Arithmetic, arithmetic_of
from cutesmith.patterns.contraction.blackwell.configuration import BlackwellConfiguration
from cutesmith.patterns.contraction.blackwell.legality import needs_launches
from cutesmith.patterns.contraction.im2col import im2col_context, lies_in_place
from cutesmith.patterns.contraction.tma import lie_along_k, tma_context
from cutesmith.patterns.graph.dtypes import ITEM_BYTES, STORAGE_TYPE

PLACES = {"n": "v", "m": "0", "mn": "v"}
"""Where the operand of sum `v` of a strip is: a thread has a row of it."""

VECTOR_BYTES = 16

BLACKWELL_NAMES = frozenset(
    "BM BN BK STAGES ROWS EPI_N BUFFERS ACCUMULATORS TENSOR_COLUMNS EPILOGUE_WARPS LOAD_WARP MMA_WARP PAIR sm100 "
    "tcgen05 tiled_mma pair_layout TmemAllocator one_thread ready tmem address acc_layout slices copy_T mine_T tTtC "
    "tCtC tTsums full done down for_tma load_vector vectors receivers tmem_load ctas totals sum_again broken "
    "rows_A rows_atom rows_A_layout rows_B_layout mnk".split()
)
"""What the template binds beside `HOPPER_NAMES`, so that an argument of the problem needs another name."""


def blackwell_context(problem: ContractionProblem, c: BlackwellConfiguration) -> dict[str, object]:
    """The names of the template that depend on the form of sm_100a."""
    epilogue = problem.epilogue
    shared = tma_context(problem, lie_along_k(problem), swapped=c.swapped, ahead=c.ahead)
    loaded = [o.loaded(f"r_{o.name}[{PLACES[shared['over'][o.name]]}]") for o in epilogue.operands]
    factors = [STORAGE_TYPE["bfloat16" if c.ahead else side.dtype] for side in (problem.a, problem.b)]
    sums = "totals[v, j]" if c.ahead else "sums[v], sums_2[v]" if c.dual else "sums[v]"
    transposed = problem.windows is not None and problem.windows.is_transposed
    return (
        shared
        | im2col_context(problem.windows)
        | {
            "batched": bool(problem.batch) and not c.joined,
            "joined": c.joined,
            "grouped": False,
            "ahead": c.ahead,
            "turned": False,
            "uncopied": lies_in_place(problem, needs_launches(problem, c)),
            "scales": (),
            "tf32": arithmetic_of(problem) is Arithmetic.TF32,
            "read_bytes": [VECTOR_BYTES] * len(epilogue.operands),
            "vectors": {o.name: VECTOR_BYTES // ITEM_BYTES[o.dtype] for o in epilogue.operands},
            "factors": factors[:: -1 if c.swapped else 1],
            "result_layout": "COL_MAJOR" if c.swapped else "ROW_MAJOR",
            "precise": c.ahead or transposed,
            "line": c.tile_k * ITEM_BYTES[problem.a.dtype],
            "call": epilogue.call(sums, loaded, list(epilogue.coordinates)),
        }
    )
