#!/usr/bin/env python3
"""The emulated GPU against a real one: the same kernels, compiled by the same DSL, on the same inputs, bit by bit.

    python evals/studies/emulator/compare_kernels.py --record evals/results/emulator/kernels  on a GPU: keep its outputs
    python evals/studies/emulator/compare_kernels.py --replay evals/results/emulator/kernels  anywhere: emulate them
    python evals/studies/emulator/compare_kernels.py --replay DIR --only 'quack/*' --jobs 2

--record writes outputs.npz and cases.json; --replay writes table.md and table.json beside them. Exit code of --replay:
1 when a case differs by more than its hardware's approximations explain (see ULPS), or has a finding of the sanitizer.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np  # noqa: E402

KEPT_BYTES = 1 << 16  # of an output: the first ones; the hash covers all
ULPS = 1  # where the hardware's approximation allows


def main() -> int:
    """Record or replay; returns the exit code."""
    options = parse()
    names = [case.name for case in cases() if any(fnmatch(case.name, glob) for glob in options.only)]
    folder = Path(options.record or options.replay)
    folder.mkdir(parents=True, exist_ok=True)
    if options.record:
        return record(names, folder, options.jobs)
    return replay(names, folder, options.jobs)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--record", metavar="DIR", help="run on this machine's GPU and keep its outputs")
    what.add_argument("--replay", metavar="DIR", help="run on the emulated GPU and compare")
    parser.add_argument("--only", nargs="*", default=["*"], metavar="GLOB", help="cases, such as 'level1/*'")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    return parser.parse_args()


def cases() -> list[Any]:
    from kernel_cases import all_cases

    return all_cases()


def run_all(work: Any, names: list[str], jobs: int, *arguments: Any) -> dict[str, dict[str, Any]]:
    """`work(name, *arguments)` for every case, in processes that are replaced when one dies."""
    done: dict[str, dict[str, Any]] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        running = {pool.submit(guarded, work, name, *arguments): name for name in names}
        for future in as_completed(running):
            name = running[future]
            done[name] = future.result()
            print(f"[{len(done)}/{len(names)}] {name}: {done[name].get('error') or 'done'}"[:200], file=sys.stderr)
    return {name: done[name] for name in names}


def guarded(work: Any, name: str, *arguments: Any) -> dict[str, Any]:
    """What one case gives, or the error that it ended with."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result: dict[str, Any] = work(name, *arguments)
            return result
    except Exception as error:  # the other cases go on
        return {"error": f"{type(error).__name__}: {str(error)[:600]}"}


def record(names: list[str], folder: Path, jobs: int) -> int:
    """Run every case on the GPU; outputs.npz holds the bits, cases.json what they are of."""
    import torch

    results = run_all(record_case, names, jobs)
    arrays = {
        f"{name}:{index}": np.frombuffer(output.pop("bytes"), np.uint8)
        for name, result in results.items()
        for index, output in enumerate(result.get("outputs", ()))
    }
    np.savez_compressed(folder / "outputs.npz", **arrays)
    machine = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "cuda": torch.version.cuda}
    (folder / "cases.json").write_text(json.dumps({"machine": machine, "cases": results}, indent=1) + "\n")
    failed = [name for name, result in results.items() if "error" in result]
    print(f"{len(results) - len(failed)} of {len(results)} cases recorded")
    for name in failed:
        print(f"  {name}: {results[name]['error'][:300]}")
    return int(bool(failed))


def record_case(name: str) -> dict[str, Any]:
    """One case on the GPU."""
    import torch
    from kernel_cases import digest

    case = next(case for case in cases() if case.name == name)
    values, sizes = case.draw()
    before = digest(values)
    outputs = [described(output) for output in as_list(case.function()(*on_device(values)))]
    torch.cuda.synchronize()
    return {"inputs": before, "sizes": list(sizes.items()), "arch": case.arch, "outputs": outputs}


def on_device(values: list[Any]) -> list[Any]:
    """The inputs as CUDA tensors, real or posing."""
    return [value.cuda() if hasattr(value, "cuda") else value for value in values]


def as_list(returned: Any) -> list[Any]:
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def described(output: Any) -> dict[str, Any]:
    """Shape, dtype, hash and the first bytes of an output."""
    import hashlib

    from kernel_cases import tensor_bytes

    data = tensor_bytes(output)
    shape, dtype = list(output.shape), str(output.dtype).removeprefix("torch.")
    return {"shape": shape, "dtype": dtype, "sha256": hashlib.sha256(data).hexdigest(), "bytes": data[:KEPT_BYTES]}


def replay(names: list[str], folder: Path, jobs: int) -> int:
    """Run every recorded case on the emulated GPU and compare."""
    recorded = json.loads((folder / "cases.json").read_text())
    known = [name for name in names if "outputs" in recorded["cases"].get(name, {})]
    started = time.monotonic()
    rows = run_all(replay_case, known, jobs, str(folder))
    head = {"recorded on": recorded["machine"], "seconds": round(time.monotonic() - started, 1), "processes": jobs}
    (folder / "table.json").write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")
    text = table(rows, recorded["machine"]["gpu"])
    (folder / "table.md").write_text(text)
    print(text)
    return int(not all(row.get("same") in ("bits", "ulp") and not row["findings"] for row in rows.values()))


def replay_case(name: str, folder: str) -> dict[str, Any]:
    """One case on the emulated GPU beside what the real one gave."""
    from kernel_cases import digest

    from cutesmith.emulator.device import emulated_device

    case = next(case for case in cases() if case.name == name)
    recorded = json.loads(Path(folder, "cases.json").read_text())["cases"][name]
    started = time.monotonic()
    values, _ = case.draw(dict(recorded["sizes"]))
    if digest(values) != recorded["inputs"]:
        return {"error": "the inputs are not those of the recording"}
    with emulated_device(case.arch) as device:
        outputs = [described(output) for output in as_list(case.function()(*on_device(values)))]
    findings = [f"{finding.kind}: {finding.message}" for finding in device.findings]
    with np.load(Path(folder, "outputs.npz")) as arrays:
        compared = [
            compare(mine, theirs, arrays[f"{name}:{index}"])
            for index, (mine, theirs) in enumerate(zip(outputs, recorded["outputs"]))
        ]
    worst = max(compared, key=lambda c: c["ulps"])
    same = "bits" if all(c["same"] for c in compared) else "ulp" if worst["ulps"] <= ULPS else "different"
    return {
        "same": same,
        "max_ulps": worst["ulps"],
        "differing": sum(c["differing"] for c in compared),
        "elements": sum(c["elements"] for c in compared),
        "shapes": [f"{o['dtype']}{o['shape']}" for o in outputs],
        "findings": findings,
        "seconds": round(time.monotonic() - started, 2),
    }


def compare(mine: dict[str, Any], theirs: dict[str, Any], kept: np.ndarray) -> dict[str, Any]:
    """Two outputs: bit-equal, or how many elements differ and by how many units in the last place at most."""
    if (mine["shape"], mine["dtype"]) != (theirs["shape"], theirs["dtype"]):
        return {"same": False, "ulps": float("inf"), "differing": 0, "elements": 0}
    ours = ordered(np.frombuffer(mine["bytes"], np.uint8), mine["dtype"])
    real = ordered(kept, mine["dtype"])
    distance = np.abs(ours - real)
    same = mine["sha256"] == theirs["sha256"]
    ulps = int(distance.max()) if distance.size else 0
    return {"same": same, "ulps": ulps, "differing": int((distance > 0).sum()), "elements": int(distance.size)}


def ordered(data: np.ndarray, dtype: str) -> np.ndarray:
    """Bits as integers whose differences are units in the last place: float order, both zeros equal."""
    width = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}.get(dtype, 1)
    bits = data.view(f"i{width}").astype(np.int64)
    if "float" not in dtype:
        return bits
    lowest = -(1 << (8 * width - 1)) if width < 8 else np.iinfo(np.int64).min
    return np.where(bits < 0, lowest - bits, bits)


def table(rows: dict[str, dict[str, Any]], gpu: str) -> str:
    """The comparison for people."""
    counts = {kind: sum(row.get("same") == kind for row in rows.values()) for kind in ("bits", "ulp", "different")}
    errors = sum("error" in row for row in rows.values())
    alarms = sum(bool(row.get("findings")) for row in rows.values())
    lines = [
        f"# The emulated GPU against {gpu}",
        "",
        f"{len(rows)} cases: {counts['bits']} bit-equal, {counts['ulp']} within {ULPS} unit in the last place, "
        f"{counts['different']} differ by more, {errors} did not run; {alarms} with findings of the sanitizer.",
        "",
        "| case | outputs | same | worst ulp | elements that differ | findings | s |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(row_line(name, row) for name, row in rows.items())]) + "\n"


def row_line(name: str, row: dict[str, Any]) -> str:
    if "error" in row:
        return f"| {name} | | did not run: {row['error'][:160].replace('|', '/')} | | | | |"
    cells = [name, ", ".join(row["shapes"]), row["same"], str(row["max_ulps"])]
    cells += [f"{row['differing']} of {row['elements']}", "; ".join(row["findings"])[:120], f"{row['seconds']:.1f}"]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    raise SystemExit(main())
