#!/usr/bin/env python3
"""Multiplications of warpgroups (`wgmma`): the emulated GPU against a real one, bit by bit.

python evals/studies/emulator/record_wgmma.py --record OUT  on a machine with a Hopper GPU: run every case, keep results
python evals/studies/emulator/record_wgmma.py --replay      anywhere: run the same PTX on the emulator and compare
python evals/studies/emulator/record_wgmma.py --replay --only e4m3
python evals/studies/emulator/record_wgmma.py --assemble    anywhere with ptxas: do all cases assemble?

The cases are in `warpgroup_cases.py`. Inputs come from a counter hash, so that only results are stored: of every set a
checksum, and the first sets of each case of few registers whole.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cutesmith.emulator.program.abi import Array

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

from evals.studies.emulator.differential import Execute  # noqa: E402
from evals.studies.emulator.record_mma import checksums  # noqa: E402
from evals.studies.emulator.warpgroup_cases import CASES, MORE_CASES, THREADS, WarpgroupCase  # noqa: E402

FOLDER = ROOT / "evals/results/emulator/mma"
RECORDINGS = {FOLDER / "wgmma_h200.npz": CASES, FOLDER / "wgmma_more_h200.npz": MORE_CASES}
Cases = tuple[WarpgroupCase, ...]
WHOLE = 1
"""Sets of a case that are kept whole."""
_FEW = 8  # registers of D: what has more is kept as checksums alone


def run(case: WarpgroupCase, execute: Execute) -> Array:
    """What a case wrote: uint32 (sets, registers, 128)."""
    inputs = case.inputs()
    lanes = len(inputs) * THREADS
    columns = np.ascontiguousarray(inputs.transpose(1, 0, 2)).reshape(case.reads, lanes)
    words = execute(case.ptx(), columns, case.writes * lanes)
    return words.reshape(case.writes, len(inputs), THREADS).transpose(1, 0, 2).astype(np.uint32)


def record(out: Path, cases: Cases, whole: int) -> None:
    """Run cases on the GPU of this machine and write the recording."""
    from evals.studies.emulator.driver import Gpu

    gpu, arrays = Gpu(), {}
    for case in cases:
        arrays |= kept(case, run(case, gpu.execute), whole)
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out, device=np.array(gpu.name), **arrays)
    print(f"{gpu.name}: {len(cases)} cases, {out.stat().st_size} bytes")


def kept(case: WarpgroupCase, results: Array, whole: int) -> dict[str, Array]:
    """What a recording keeps of a case's results, by name."""
    first = results[: whole if case.writes <= _FEW else 0]
    return {f"{case.name} whole": first, f"{case.name} checksums": checksums(results)}


@dataclass(frozen=True)
class Comparison:
    """One case: the sets that differ, and the first differing register of those kept whole."""

    case: WarpgroupCase
    differing: tuple[int, ...]
    example: str = ""

    def line(self) -> str:
        """A row of the table."""
        total = self.case.sets * len(self.case.kinds)
        kinds = sorted({self.case.kinds[index // self.case.sets] for index in self.differing})
        verdict = (
            f"{len(self.differing)} of {total} sets differ ({', '.join(kinds)}){self.example}" if kinds else "equal"
        )
        return f"{'FAIL' if self.differing else 'ok  '} {self.case.name:72} {verdict}"


def compare(case: WarpgroupCase, results: Array, recording: Any) -> Comparison:
    """The emulator's results (sets, registers, 128) against the recording."""
    differing = np.flatnonzero(checksums(results) != recording[f"{case.name} checksums"])
    first = recording[f"{case.name} whole"]
    wrong = np.argwhere(results[: len(first)] != first)
    example = ""
    if len(wrong):
        one, register, thread = (int(index) for index in wrong[0])
        here, there = int(results[one, register, thread]), int(first[one, register, thread])
        example = f"; set {one} register {register} thread {thread}: hardware {there:#x}, emulator {here:#x}"
    return Comparison(case, tuple(int(index) for index in differing), example)


def replay(execute: Execute, cases: Cases, only: str, path: Path) -> Iterator[Comparison]:
    """Compare every case whose name contains `only` with the recording."""
    recording = np.load(path)
    return (compare(case, run(case, execute), recording) for case in cases if only in case.name)


def assemble(cases: Cases) -> int:
    """Assemble every case, name those that ptxas refuses; the number of them."""
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            path = Path(folder) / "test.ptx"
            path.write_text(case.ptx())
            command = ["ptxas", "-arch=sm_90a", "-o", str(path.with_suffix(".cubin")), str(path)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                refused += 1
                print(f"{case.name}: {done.stderr.splitlines()[0]}")
    return refused


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0: every case is equal to the recording."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--record", metavar="OUT", type=Path)
    action.add_argument("--replay", action="store_true")
    action.add_argument("--assemble", action="store_true")
    parser.add_argument("--only", default="", help="replay only cases whose name contains this")
    parser.add_argument("--whole", type=int, default=WHOLE, help="sets kept whole (default %(default)s)")
    parser.add_argument("--more", action="store_true", help="the second list of cases")
    parser.add_argument("--recording", type=Path, help="the file to replay (default: that of the cases)")
    chosen = parser.parse_args(arguments)
    known, cases = list(RECORDINGS.items())[chosen.more]
    if chosen.record:
        record(chosen.record, cases, chosen.whole)
        return 0
    if chosen.assemble:
        return 1 if assemble(cases) else 0
    from evals.studies.emulator.emulated import execute

    found = list(replay(execute, cases, chosen.only, chosen.recording or known))
    print("\n".join(one.line() for one in found))
    return 1 if any(one.differing for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
