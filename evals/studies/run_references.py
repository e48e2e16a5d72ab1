"""Every task's reference at its full size on a GPU, as PyTorch computes it and in float64.

    python evals/studies/run_references.py --out evals/results/h200/references_full_size.jsonl [--level N] [--jobs J]

One line a task: bytes of the inputs, seconds and peak memory of the GPU of two calls and of the one in float64, whether
the two agree to the bit, and what PyTorch's own result looks like to the judge, whose tolerance it has to keep.
Exit code 1 when one raised, has no float64 result, or fails the tolerance that kernels are held to.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from cutesmith.evals.suites import load_suite  # noqa: E402
from cutesmith.judge.candidate_side.outputs import bytes_of, same_bytes  # noqa: E402
from cutesmith.judge.reference_side.comparison import compare  # noqa: E402
from cutesmith.judge.reference_side.precision import in_float64  # noqa: E402
from cutesmith.judge.reference_side.problem_calls import (  # noqa: E402
    load_problem,
    native_outputs,
    seed_everything,
)
from cutesmith.judge.reference_side.tolerance import tolerance_for  # noqa: E402
from cutesmith.judge.transfer.tensors import copy_of  # noqa: E402

SEED = 7


def main(argv: Sequence[str] | None = None) -> int:
    """Run them, several processes at a time; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--suite", default="core")
    parser.add_argument("--level", type=int, action="append", default=[])
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=3, help="processes, which share the GPU's memory (default: 3)")
    options = parser.parse_args(argv)
    tasks = load_suite(options.suite, levels=options.level, ids=options.only).tasks
    options.out.parent.mkdir(parents=True, exist_ok=True)
    wrong = 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool, options.out.open("w") as lines:
        for done in as_completed(pool.submit(measured, task.id, str(task.path)) for task in tasks):
            line = done.result()
            print(json.dumps(line), file=lines, flush=True)
            print(_told(line), flush=True)
            wrong += bool(line["error"] or line["problems"] or "error" in line["float64"])
    print(f"{len(tasks)} tasks, {wrong} with a problem")
    return int(wrong > 0)


def measured(task: str, path: str) -> dict[str, Any]:
    """The line of one task; what it raises becomes its "error"."""
    line: dict[str, Any] = {"task": task, "error": "", "problems": [], "float64": {}}
    try:
        _measure(line, Path(path))
    except Exception as error:  # noqa: BLE001 - any task may raise anything
        line["error"] = f"{type(error).__name__}: {str(error)[:500]}"
    gc.collect()
    torch.cuda.empty_cache()
    return line


def _measure(line: dict[str, Any], path: Path) -> None:
    problem = load_problem(path)
    seed_everything(SEED)
    began = time.monotonic()
    values = [v.cuda() if isinstance(v, torch.Tensor) else v for v in problem.get_inputs()]
    line["draw_seconds"] = round(time.monotonic() - began, 3)
    line["input_bytes"] = sum(value.nbytes for value in values if isinstance(value, torch.Tensor))
    native, line["native"] = _peak(lambda: native_outputs(problem.reference_fn, _copies(values))[0])
    again, line["native_again"] = _peak(lambda: native_outputs(problem.reference_fn, _copies(values))[0])
    line["same_twice"] = all(same_bytes(bytes_of(a), bytes_of(b)) for a, b in zip(native, again))
    del again
    try:
        returned, line["float64"] = _peak(lambda: in_float64(problem.reference_fn, _copies(values)))
    except Exception as error:  # noqa: BLE001 - the judge goes on without: it is said here
        line["float64"] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        return
    exact = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    line["problems"] = list(_problems(native, exact, problem.tolerance))


def _problems(native: list[torch.Tensor], exact: list[torch.Tensor], stated: dict[str, float]) -> Iterator[str]:
    """What the judge would say of a kernel that gives PyTorch's own result."""
    for index, (own, wide) in enumerate(zip(native, exact)):
        judged = compare(index, own, own, wide, tolerance_for(own.dtype, stated.get("rtol"), stated.get("atol")))
        if judged.violation:
            yield judged.violation.text


def _peak(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What a call returns, its seconds, and the most memory that the GPU held meanwhile."""
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.synchronize()
    began = time.monotonic()
    result = call()
    torch.cuda.synchronize()
    seconds = round(time.monotonic() - began, 4)
    return result, {"seconds": seconds, "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 3)}


def _copies(values: Sequence[Any]) -> list[Any]:
    return [copy_of(value) for value in values]


def _told(line: dict[str, Any]) -> str:
    if line["error"]:
        return f"{line['task']}: {line['error'][:200]}"
    wide = line["float64"]
    double = wide.get("error", "")[:80] or f"float64 {wide['seconds']:.2f} s, {wide['peak_gib']:.1f} GiB"
    own = f"{line['native_again']['seconds'] * 1e3:.2f} ms, {line['native']['peak_gib']:.1f} GiB"
    same = "" if line["same_twice"] else "; differs from call to call"
    return f"{line['task']}: {own}; {double}{same}{''.join('; ' + problem for problem in line['problems'])}"


if __name__ == "__main__":
    sys.exit(main())
