"""What the forms of sm_90a and sm_100a share: what TMA can read and write, and names that both templates take."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cutesmith.patterns.contraction.analysis import ContractionProblem, Matrix, Right, Seen
from cutesmith.patterns.contraction.epilogue import Operand, Output
from cutesmith.patterns.graph.attributes import TensorCode
from cutesmith.patterns.graph.dtypes import ITEM_BYTES, stored_types

TMA_BYTES = 16
"""Addresses and strides of what TMA reads and writes are multiples (CUDA driver API, cuTensorMapEncodeTiled)."""

MOST_TMA_BATCH_DIMS = 3
"""A tensor map has at most five dimensions."""


@dataclass(frozen=True)
class Prediction:
    """The predicted time of a configuration in seconds, and the terms that it comes from.

    `waves`: how often all multiprocessors work at once, the last time partly; `busy`: which part of that is work.
    `bound`: what the time is made of.
    """

    seconds: float
    tiles: int
    waves: int
    busy: float
    bound: str

    @property
    def busy_waves(self) -> str:
        """Such as "93% of 2 waves"."""
        return f"{self.busy:.0%} of {self.waves} wave{'s' if self.waves > 1 else ''}"


def tma_reaches(matrix: Matrix) -> bool:
    """Whether a tensor map can say where its lines are."""
    return matrix.contiguous is not None and matrix.vector() * ITEM_BYTES[matrix.dtype] == TMA_BYTES


def lie_along_k(problem: ContractionProblem) -> tuple[bool, bool]:
    """Whether A and B are contiguous along k; else they are along m and n."""
    if isinstance(problem.b, Seen):
        return True, True
    return problem.a.contiguous == -1, problem.b.contiguous == -2


def obstacles_of_second(problem: ContractionProblem) -> Iterator[str]:
    """A sentence where the right factors of two products cannot be tiles of one stage."""
    if len({(side.contiguous, given_by_columns(side) is None) for side in problem.right}) > 1:
        yield "both right factors are loaded in the same way"


def copied_matrices(problem: ContractionProblem, turned: Collection[Matrix] = ()) -> list[Matrix | Seen]:
    """The factors that are copied first: into lines that start where TMA can, or, those `turned`, along k."""
    sides = [side for side in (problem.a, *problem.right) if isinstance(side, Matrix)]
    return [side for side in sides if side in turned or not tma_reaches(side)]


def outputs_apart(problem: ContractionProblem) -> list[Output]:
    """The outputs whose rows do not start where TMA can write."""
    return [output for output in problem.epilogue.outputs if problem.n * ITEM_BYTES[output.dtype] % TMA_BYTES]


def given_by_columns(right: Right) -> TensorCode | None:
    """The code of a right factor as the kernel reads it, (n, k), where that is what an argument is."""
    return right.transposed if isinstance(right, Matrix) else None


def varies_over(operand: Operand, *, swapped: bool, by_rows: bool = False) -> str:
    """Over which coordinates of the kernel's tiles an operand changes: "m", "n" or both.

    One number counts as "n", or where functions of rows read it (`by_rows`) as "m".
    """
    m, n = operand.varies[-2:][:: -1 if swapped else 1]
    return "mn" if m and n else "m" if m or (by_rows and not n) else "n"


def stretches(problem: ContractionProblem) -> bool:
    """Whether a size of 1 may stand for more than one element of the result of a launch."""
    ones = any(1 in operand.shape[-operand.rank :] for operand in problem.epilogue.operands)
    ones = ones or problem.epilogue.of_rows is not None
    return ones or bool(problem.batch or problem.windows) or any(each is not None for each in problem.scales)


def tma_context(
    problem: ContractionProblem,
    contiguous_k: Sequence[bool],
    *,
    swapped: bool,
    ahead: bool,
) -> dict[str, Any]:
    """Names of both templates; `contiguous_k` tells of A and B, `ahead`: launches before make parts of them.

    "dims" are the dimensions that TMA needs contiguous in the factors, as `kernel_fn` passes them. "twice" is the
    factor, as the kernel calls it, of which each of two products has its own; a stage holds a tile of both.
    """
    epilogue = problem.epilogue
    twice = "" if problem.second is None else "A" if swapped else "B"
    by_columns = given_by_columns(problem.b) is not None
    dims = [-1 if contiguous_k[0] else -2, *[-1 if contiguous_k[1] == by_columns else -2] * len(problem.right)]
    if problem.windows:  # channels
        dims = [-2, -1 - problem.windows.rank]
    return {
        "by_columns": by_columns,
        "types": stored_types([*problem.dtypes, *(["bfloat16"] if ahead else [])]),
        "stretches": stretches(problem),
        "over": {o.name: varies_over(o, swapped=swapped, by_rows=bool(problem.rounds)) for o in epilogue.operands},
        "floating": {output.name: _is_rounded(output) for output in epilogue.outputs},
        "majors": ["K" if along_k else "MN" for along_k in contiguous_k][:: -1 if swapped else 1],
        "dims": dims,
        "order": problem.order,
        "twice": twice,
        "second": twice and f"{twice}_2",
        "twice_A": "2 * " if twice == "A" else "",
        "twice_B": "2 * " if twice == "B" else "",
    }


def _is_rounded(output: Output) -> bool:
    """Whether floats are converted in pairs after the epilogue, not one by one."""
    return output.computed == "Float32" and output.dtype in ("float16", "bfloat16", "float32")
