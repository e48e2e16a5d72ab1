#!/usr/bin/env python3
"""Further cases of the emulated GPU against a real one: `wgmma`, copies, mbarriers, atomics, `mma`, whole kernels.

python evals/studies/emulator/record_further.py --out DIR  on a machine with a Hopper GPU: run all into DIR/further.npz
python evals/studies/emulator/record_further.py --replay   anywhere: run the same cases on the emulator and compare
python evals/studies/emulator/record_further.py --out DIR --device emulated --only mbarrier  as if it were a GPU
python evals/studies/emulator/record_further.py --list

Each case gives named arrays: checksums of all results, and the first ones whole. A case that ends with an error keeps
its text. Cases run in processes of their own, several at a time; one that fails or hangs ends only its process, and the
others of that process run again in the next. What time leaves out is "not run".
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [place for place in (str(ROOT), str(Path(__file__).resolve().parent)) if place not in sys.path]
try:
    import llvmlite.binding  # noqa: F401
except ImportError:  # only the emulated GPU needs it
    sys.modules |= {name: MagicMock() for name in ("llvmlite", "llvmlite.binding", "llvmlite.ir")}

from cutesmith.emulator.program.abi import Array  # noqa: E402
from evals.studies.emulator import record_copies, record_mma, record_wgmma  # noqa: E402
from evals.studies.emulator.copy_cases import CASES as COPIES  # noqa: E402
from evals.studies.emulator.copy_cases import CopyCase  # noqa: E402
from evals.studies.emulator.copy_probes import ATOMICS, PROBES  # noqa: E402
from evals.studies.emulator.interleave_cases import INTERLEAVE_CASES  # noqa: E402
from evals.studies.emulator.sparse_cases import SPARSE_CASES  # noqa: E402
from evals.studies.emulator.tensor_map_cases import MAP_CASES  # noqa: E402
from evals.studies.emulator.warp_forms import (  # noqa: E402
    FURTHER_MULTIPLICATIONS,
    SPARSE_MULTIPLICATIONS,
    multiplication,
)
from evals.studies.emulator.warpgroup_further import FURTHER_CASES  # noqa: E402

RECORDING = ROOT / "evals/results/emulator/further/recording.npz"
INTERLEAVED = ROOT / "evals/results/emulator/further/interleaved.npz"
SPARSE = ROOT / "evals/results/emulator/further/sparse.npz"
_OTHER_BYTES = "its mbarrier is told of other bytes than come: a deadlock to the emulated GPU"
_TOLD_OTHERS = ((16, 3), (16, 4), (16, 5), (32, 3), (32, 4))
_PARTS = (
    "the emulated GPU refuses it; the GPU copied whole units of 16 bytes, and the mbarrier of a load waited for ever"
)
EXPLAINED = {
    **{f"load interleave {unit} rank {rank}": _OTHER_BYTES for unit, rank in _TOLD_OTHERS},
    **{f"probe bulk load of {size}": _PARTS for size in (8, 15)},
    **{f"probe bulk store of {size}": _PARTS for size in (8, 24)},
}
"""Cases in which the emulator differs from the recording, with the reason."""
Arrays = dict[str, Array]
_KEPT_OUTPUT = 1 << 15  # bytes of an output of a whole kernel; the hash covers all


@dataclass(frozen=True)
class Case:
    """One case: `run(device)` gives named arrays, `device` is "gpu" or "emulated"; `cost` in seconds, at most."""

    name: str
    run: Callable[[str], Arrays]
    cost: int = 4
    alone: bool = False


@cache
def gpu() -> Any:
    """The GPU of this machine."""
    from evals.studies.emulator.driver import Gpu

    return Gpu()


def _execute(device: str) -> Callable[..., Array]:
    if device == "gpu":
        return gpu().execute  # type: ignore[no-any-return]
    from evals.studies.emulator.emulated import execute

    return execute


def _multiply_warpgroup(case: Any, device: str) -> Arrays:
    results = record_wgmma.run(case, _execute(device))
    return {"checksums": record_mma.checksums(results), "whole": results[:1, :4]}


def _multiply_warp(form: Any, device: str) -> Arrays:
    found: Arrays = {}
    for kind in form.kinds:
        results = record_mma.run(form, kind, _execute(device))
        found |= {f"{kind} checksums": record_mma.checksums(results), f"{kind} whole": results[:1]}
    return found


def _copy(case: CopyCase, device: str) -> Arrays:
    if device == "emulated":
        return record_copies.kept_of(case, record_copies.run(case), 1)
    maps: list[bytes] = []
    encode = partial(record_copies.encoded, gpu(), case, maps)
    kept = record_copies.kept_of(case, gpu().launch(case.ptx(), case.inputs(), case.before(), case.sets, encode), 1)
    return kept | ({"map": np.frombuffer(maps[0], np.uint8)} if maps else {})


def _kernel(case: Any, device: str) -> Arrays:
    """Outputs of a whole kernel, and its inputs: matrix products on the CPU of another machine may round otherwise."""
    from contextlib import nullcontext

    import torch
    from compare_kernels import as_list, on_device
    from kernel_cases import digest, tensor_bytes

    from cutesmith.emulator.device import emulated_device

    values, _ = case.draw()
    with emulated_device(case.arch) if device == "emulated" else nullcontext():
        outputs = as_list(case.function()(*on_device(values)))
        if device == "gpu":
            torch.cuda.synchronize()
        found: Arrays = {"inputs": np.array(digest(values))}
        for index, output in enumerate(outputs):
            data = np.frombuffer(tensor_bytes(output), np.uint8)
            found[f"dtype {index}"] = np.array(f"{output.dtype} {tuple(output.shape)}")
            found[f"output {index}"] = data[:_KEPT_OUTPUT].copy()
            found[f"checksums {index}"] = record_mma.checksums(data[None])
    return found


def cases(kernels: bool = True, again: bool = False) -> Iterator[Case]:
    """All cases, those of whole kernels (which import PyTorch) if they are wanted.

    `again`: also the copies that an H200 recorded before (`record_copies.py`), those with interleaved maps, and the
    products with a sparse A, which are recordings of their own.
    """
    for one in FURTHER_CASES:
        yield Case(one.name.removeprefix("wgmma.mma_async.sync.aligned."), partial(_multiply_warpgroup, one))
    with np.load(record_copies.RECORDING) as before:
        recorded = set(before.files)
    for copy in COPIES:
        if again or f"{copy.name} whole" not in recorded:
            yield Case(copy.name, partial(_copy, copy))
    for copy in (*ATOMICS, *MAP_CASES, *(INTERLEAVE_CASES if again else ())):
        yield Case(copy.name, partial(_copy, copy))
    for copy in PROBES:
        yield Case(copy.name, partial(_copy, copy), alone=copy.name.startswith("probe"))
    for name in FURTHER_MULTIPLICATIONS:
        yield Case(name, partial(_multiply_warp, multiplication(name)))
    if again:
        yield from sparse_cases()
    if not kernels:
        return
    from kernel_cases import OWN_FURTHER, own_cases

    for kernel in own_cases(OWN_FURTHER):
        yield Case(kernel.name, partial(_kernel, kernel), cost=150, alone=True)


def sparse_cases() -> Iterator[Case]:
    """Products of warps and warpgroups with a sparse A."""
    for name in SPARSE_MULTIPLICATIONS:
        yield Case(name, partial(_multiply_warp, multiplication(name)))
    for one in SPARSE_CASES:
        yield Case(one.name.removeprefix("wgmma."), partial(_multiply_warpgroup, one))


# --------------------------------------------------------------------------------------------------------- processes


def run_some(names: list[str], device: str, folder: Path) -> None:
    """Run cases one after another; each result is a file of its own. An error of the emulator ends only its case."""
    known = {case.name: case for case in cases(any(name.startswith("own/") for name in names), again=True)}
    for name in names:
        try:
            arrays = known[name].run(device)
        except Exception as error:
            text = np.array(f"{type(error).__name__}: {error}"[:400])
            _keep(folder, name, {"error": text})
            if device == "gpu":  # its context may be of no use
                os._exit(3)
            continue
        _keep(folder, name, arrays)


def _keep(folder: Path, name: str, arrays: Arrays) -> None:
    path = _file(folder, name)
    np.savez(path.with_suffix(".part.npz"), **arrays)  # type: ignore[arg-type]
    path.with_suffix(".part.npz").rename(path)


def _file(folder: Path, name: str) -> Path:
    return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.npz"


def run_all(chosen: list[Case], device: str, jobs: int, seconds: float) -> dict[str, Arrays]:
    """What each case gave, or its error."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        waiting: queue.Queue[list[Case]] = queue.Queue()
        for batch in batches(chosen, jobs):
            waiting.put(batch)
        workers = [threading.Thread(target=_work, args=(waiting, device, folder, end)) for _ in range(jobs)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        found = {}
        for case in chosen:
            path = _file(folder, case.name)
            if not path.exists():
                found[case.name] = {"error": np.array("not run: the time was over")}
                continue
            with np.load(path) as one:
                found[case.name] = {name: one[name] for name in one.files}
    return found


def batches(chosen: list[Case], jobs: int) -> list[list[Case]]:
    """The dear ones first and alone, then some of the others together."""
    alone = sorted((case for case in chosen if case.alone), key=lambda case: -case.cost)
    others = [case for case in chosen if not case.alone]
    size = max(1, min(16, -(-len(others) // (2 * jobs))))
    dear = [[case] for case in alone if case.cost > 60]
    together = [others[start : start + size] for start in range(0, len(others), size)]
    # a probe usually ends its process: eight of them need at most eight
    probes = [case for case in alone if case.cost <= 60]
    return dear + together + [probes[start : start + 8] for start in range(0, len(probes), 8)]


def _work(waiting: queue.Queue[list[Case]], device: str, folder: Path, end: float) -> None:
    while time.monotonic() < end:
        try:
            left = waiting.get_nowait()
        except queue.Empty:
            return
        while left and time.monotonic() < end:
            patience = 25 + sum(case.cost for case in left) * (1 if device == "gpu" else 4)
            error = _run_child([case.name for case in left], device, folder, min(patience, end - time.monotonic()))
            undone = [case for case in left if not _file(folder, case.name).exists()]
            if undone and len(undone) == len(left) or error.startswith("did not end"):
                _keep(folder, undone[0].name, {"error": np.array(error)}) if undone else None
                undone = undone[1:]
            left = undone


def _run_child(names: list[str], device: str, folder: Path, seconds: float) -> str:
    """Run cases in a process; the last line that it said."""
    command = [sys.executable, __file__, "--child", str(folder), "--device", device]
    try:
        done = subprocess.run(
            command, input=json.dumps(names), capture_output=True, text=True, timeout=max(5.0, seconds)
        )
    except subprocess.TimeoutExpired:
        return f"did not end within {seconds:.0f} s"
    return (done.stderr.strip().splitlines() or ["no message"])[-1]


# --------------------------------------------------------------------------------------------------------- recordings


def save(path: Path, found: dict[str, Arrays], device: str) -> None:
    """One file; keys are "case | field"."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"{name} | {field}": array for name, fields in found.items() for field, array in fields.items()}
    np.savez_compressed(path, device=np.array(gpu().name if device == "gpu" else "emulated"), **arrays)  # type: ignore[arg-type]
    failed = {name: str(fields["error"]) for name, fields in found.items() if "error" in fields}
    print(f"{len(found)} cases, {len(failed)} with an error, {path.stat().st_size} bytes")
    print("\n".join(f"  {name}: {error}" for name, error in failed.items()))


def load(path: Path) -> dict[str, Arrays]:
    """The fields of each case of a recording."""
    found: dict[str, Arrays] = {}
    with np.load(path) as arrays:
        for key in arrays.files:
            name, _, field = key.partition(" | ")
            if field:
                found.setdefault(name, {})[field] = arrays[key]
    return found


def differences(here: Arrays, there: Arrays) -> str:
    """What differs between the emulator's fields and the recorded ones; "" where nothing does."""
    if "error" in here or "error" in there:
        both = "error" in there and str(here.get("error", "")).startswith("KernelFault")
        said = [str(side["error"]) if "error" in side else "no error" for side in (there, here)]
        return "" if both else f"hardware: {said[0]}; emulator: {said[1]}"
    for field, recorded in sorted(there.items(), key=lambda one: one[0] != "inputs"):
        if field == "map":  # the emulator's maps have a layout of their own
            continue
        mine = here[field]
        if mine.shape != recorded.shape:
            return f"{field}: shape {recorded.shape} there, {mine.shape} here"
        if (mine != recorded).any():
            where = np.argwhere(np.atleast_1d(mine != recorded))
            first = tuple(int(index) for index in where[0])
            values = (np.atleast_1d(recorded)[first], np.atleast_1d(mine)[first])
            return f"{field}: {len(where)} differ, first {first}: hardware {values[0]}, emulator {values[1]}"
    return ""


def main(arguments: list[str] | None = None) -> int:
    """Exit code of a replay: 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of the recording")
    parser.add_argument("--replay", action="store_true", help="compare the emulator with a recording")
    parser.add_argument("--recording", type=Path, default=RECORDING)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--again", action="store_true", help="record also the copies that an H200 recorded before")
    parser.add_argument("--only", nargs="*", default=[""], help="cases whose name contains one of these")
    parser.add_argument("--device", choices=("gpu", "emulated"), default="gpu")
    parser.add_argument("--jobs", type=int, default=min(16, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, default=330.0, help="for all cases (default %(default)s)")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.child:
        run_some(json.loads(sys.stdin.read()), asked.device, asked.child)
        return 0
    chosen = [case for case in cases(again=asked.again) if any(part in case.name for part in asked.only)]
    if asked.list:
        print("\n".join(case.name for case in chosen), f"\n{len(chosen)} cases")
        return 0
    if asked.out:
        found = run_all(chosen, asked.device, asked.jobs, asked.seconds)
        save(asked.out / "further.npz", found, asked.device)
        return 0
    return replay(chosen, asked.recording)


def emulated(case: Case) -> Arrays:
    """What the emulated GPU gives, or its error."""
    try:
        return case.run("emulated")
    except Exception as error:
        return {"error": np.array(f"{type(error).__name__}: {error}"[:400])}


def replay(chosen: list[Case], path: Path) -> int:
    """Compare every case with the recording; 1 where one differs."""
    recorded, failed = load(path), 0
    for case in chosen:
        if case.name not in recorded:
            continue
        said = differences(emulated(case), recorded[case.name])
        why = EXPLAINED.get(case.name, "") if said else ""
        failed += bool(said and not why)
        print(f"{'ok  ' if not said else 'why ' if why else 'FAIL'} {case.name} {why or said}", flush=True)
    print(f"{failed} of {len(chosen)} differ without an explanation")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
