"""Operations that no kernel can compute, why, and what to write instead."""

from __future__ import annotations

READS = frozenset({"aten._local_scalar_dense", "aten.is_nonzero", "aten.equal"})
AS_AN_INPUT = " (return it from get_inputs(), or write class Model, whose weights are inputs)"
READS_VALUE = (
    "reads a value of a tensor (`.item()`, `.tolist()`, a branch on it), which the host does not know; "
    "compute with the tensor (torch.where, a mask, an index), or make the number an argument; for rows of groups that "
    "end at such values: torch.nn.functional.grouped_mm(x, weights, offs=ends)"
)
SHAPE_DEPENDS = "has a result whose shape depends on values"
CHOOSES_ROWS = (
    f"{SHAPE_DEPENDS}; compute all rows and choose by torch.where, or sort rows by group: "
    "torch.nn.functional.grouped_mm(x, weights, offs=ends)"
)
DRAWS = "draws random numbers"
UNKNOWN = {"masked": CHOOSES_ROWS, "drawn": DRAWS}
"""Operations of nodes that stand for what is not known, and why a function that returns it is refused."""
_FACTORS = frozenset(
    f"aten.{name}"
    for name in (
        "_linalg_det _linalg_eigh _linalg_eigvals _linalg_slogdet _linalg_solve_ex _linalg_svd cholesky cholesky_solve "
        "geqrf linalg_cholesky_ex linalg_eig linalg_inv_ex linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq "
        "linalg_lu linalg_lu_factor_ex linalg_lu_solve linalg_qr linalg_solve_triangular lu_unpack triangular_solve"
    ).split()
)
FACTORS = (
    "factors or solves a matrix step by step, each by the one before; products alone are matched, determinants and "
    "inverses up to 3 x 3, and triangular systems up to 4 x 4"
)
REFUSED: dict[str, str] = dict.fromkeys(_FACTORS, FACTORS) | {
    "aten.nonzero": CHOOSES_ROWS,
    "aten.masked_select": CHOOSES_ROWS,
    "aten.unique_consecutive": SHAPE_DEPENDS,
    "aten.unique_dim": SHAPE_DEPENDS,
    "aten._unique2": SHAPE_DEPENDS,
    "aten.bincount": f"{SHAPE_DEPENDS}; give it minlength",
    "aten.repeat_interleave": f"{SHAPE_DEPENDS}; give it output_size",
}
"""The last two are decomposed where the caller tells the length of the result."""
