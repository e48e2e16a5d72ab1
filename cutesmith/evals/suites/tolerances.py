"""By which tolerance a task is judged."""

from __future__ import annotations

from cutesmith.errors import UsageError
from cutesmith.evals.records import Task

TOLERANCES = ("strict", "kernelbench")
KERNELBENCH_FULL, KERNELBENCH_HALF = 1e-4, 1e-2
"""rtol = atol of fp32, and of fp16 and bf16: `get_tolerance_for_precision` in KernelBench's src/kernelbench/eval.py."""

HALVES = frozenset({"fp16", "bf16"})


def tolerance_of(task: Task, name: str = "") -> dict[str, float] | None:
    """`{"rtol", "atol"}` for verify, or None for the judge's own (the file's TOLERANCE, else by dtype).

    `name` overrides the task's. Raises UsageError for a tolerance that does not exist.
    """
    chosen = name or task.tolerance
    if chosen not in TOLERANCES:
        raise UsageError(f"--tolerance {chosen}: there is no such tolerance", hint=f"Use {' or '.join(TOLERANCES)}.")
    if chosen == "strict":
        return None
    number = KERNELBENCH_HALF if HALVES & set(task.dtypes) else KERNELBENCH_FULL
    return {"rtol": number, "atol": number}
