"""How a pattern's configuration cuts a problem up, read off the kernel section that it renders.

The section's own `plan_rows` is asked: whatever decides at run time how a row is spread decides here too.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, NamedTuple

from cutesmith.problems.contract import defined_names, module_scope, parse
from cutesmith.runtime.tiling import Tiling

REGISTER_BYTES = 4


def rows_tiling(section: str, columns: int, vector: int, settings: Mapping[str, Any]) -> Tiling:
    """The tiling of a rows kernel for rows of `columns` elements that allow `vector` elements an access.

    Registers are a lower bound: a thread keeps at least one value of each of its elements from one visit to the next,
    the tensor's own or, of several tensors, a float32 made of them. Shared memory is the row's, without the few partial
    results.
    """
    names = _run_host_code(section)
    plan = names["plan_rows"](columns, vector)
    kept = names["KEPT_BYTES"]
    threads = plan.threads * plan.rows
    held = plan.chunks * plan.vector * min(kept, REGISTER_BYTES) if plan.resident else 0
    width = -(-plan.vectors // plan.cluster) * plan.vector
    return Tiling(
        threads=threads,
        tile=(plan.rows, max(plan.vector, width)),
        cluster=(plan.cluster, 1, 1),
        vector=plan.vector,
        smem_bytes=plan.kept * plan.vector * kept if plan.shared else 0,
        registers=-(-held // REGISTER_BYTES),
        blocks_per_sm=names.get("THREADS_PER_SM", 0) // threads,
        settings=dict(settings),
    )


def _run_host_code(section: str) -> dict[str, Any]:
    """The section's constants, `Plan` and `plan_rows`: plain Python that we rendered."""
    body = [statement for statement in module_scope(parse(section, "kernel section").body) if _is_planning(statement)]
    names: dict[str, Any] = {"NamedTuple": NamedTuple, "__name__": "kernel_section"}
    exec(compile(ast.Module(body=body, type_ignores=[]), "kernel section", "exec"), names)
    return names


def _is_planning(statement: ast.stmt) -> bool:
    names = set(defined_names(statement))
    constant = isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
    return bool(names & {"Plan", "plan_rows"}) or (constant and all(name.isupper() for name in names))
