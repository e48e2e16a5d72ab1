#!/usr/bin/env python3
"""Warp-wide instructions and matrix multiplications: the emulated GPU against a real one, bit by bit.

python evals/studies/emulator/record_mma.py --record OUT  on a machine with a GPU: run every form, keep what it wrote
python evals/studies/emulator/record_mma.py --replay  anywhere: run the same PTX on the emulator and compare
python evals/studies/emulator/record_mma.py --assemble  anywhere with ptxas: do all forms assemble?

The forms are in `warp_forms.py`, the inputs of matrices in `mma_inputs.py`; both come from a counter hash, so that only
results are stored: the first sets whole, of every set a checksum.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cutesmith.emulator.program.abi import Array

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

from evals.studies.emulator.differential import Execute  # noqa: E402
from evals.studies.emulator.mma_inputs import SETS  # noqa: E402
from evals.studies.emulator.warp_forms import FORMS, WARP, Form  # noqa: E402

RECORDING = ROOT / "evals/results/emulator/mma/h200.npz"
WHOLE = 2
"""Sets of a form and kind that are kept whole."""


def run(form: Form, kind: str, execute: Execute) -> Array:
    """What a form wrote: uint32 or uint64 (sets, writes, 32)."""
    inputs = np.ascontiguousarray(form.inputs(kind).transpose(1, 0, 2)).reshape(form.reads, SETS * WARP)
    words = execute(form.ptx(), inputs, form.writes * SETS * WARP)
    return words.reshape(form.writes, SETS, WARP).transpose(1, 0, 2).astype(f"u{form.bits // 8}")


def checksums(results: Array) -> Array:
    """uint32 (sets,) of results (sets, writes, 32)."""
    return np.array([zlib.crc32(np.ascontiguousarray(one).tobytes()) for one in results], np.uint32)


def cases() -> Iterator[tuple[Form, str]]:
    """Every form with every kind of input."""
    return ((form, kind) for form in FORMS for kind in form.kinds)


def record(out: Path, whole: int) -> None:
    """Run every form on the GPU of this machine and write the recording."""
    from evals.studies.emulator.driver import Gpu

    gpu, arrays = Gpu(), {}
    for form, kind in cases():
        results = run(form, kind, gpu.execute)
        arrays[f"{form.name} {kind} whole"] = results[:whole]
        arrays[f"{form.name} {kind} checksums"] = checksums(results)
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out, device=np.array(gpu.name), **arrays)
    print(f"{gpu.name}: {len(arrays) // 2} recordings of {len(FORMS)} forms, {out.stat().st_size} bytes")


@dataclass(frozen=True)
class Comparison:
    """One form and kind: the sets whose checksum differs, and the first differing register of those kept whole."""

    form: Form
    kind: str
    differing: tuple[int, ...]
    example: str = ""

    def line(self) -> str:
        """A row of the table."""
        verdict = f"{len(self.differing)} of {SETS} sets differ{self.example}" if self.differing else "equal"
        return f"{'FAIL' if self.differing else 'ok  '} {self.form.name:56} {self.kind:10} {verdict}"


def compare(form: Form, kind: str, results: Array, recording: Any) -> Comparison:
    """The emulator's results (sets, writes, 32) against the recording."""
    differing = np.flatnonzero(checksums(results) != recording[f"{form.name} {kind} checksums"])
    kept = recording[f"{form.name} {kind} whole"]
    wrong = np.argwhere(results[: len(kept)] != kept)
    example = ""
    if len(wrong):
        one, register, lane = (int(index) for index in wrong[0])
        here, there = int(results[one, register, lane]), int(kept[one, register, lane])
        example = f"; set {one} register {register} lane {lane}: hardware {there:#x}, emulator {here:#x}"
    return Comparison(form, kind, tuple(int(index) for index in differing), example)


def replay(execute: Execute, path: Path = RECORDING) -> Iterator[Comparison]:
    """Compare every form with the recording."""
    recording = np.load(path)
    return (compare(form, kind, run(form, kind, execute), recording) for form, kind in cases())


def assemble() -> int:
    """Assemble every form, name those that ptxas refuses; the number of them."""
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        for form in FORMS:
            path = Path(folder) / "test.ptx"
            path.write_text(form.ptx())
            command = ["ptxas", "-arch=sm_90", "-o", str(path.with_suffix(".cubin")), str(path)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                refused += 1
                print(f"{form.name}: {done.stderr.splitlines()[0]}")
    return refused


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0: every form is equal to the recording."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--record", metavar="OUT", type=Path)
    action.add_argument("--replay", action="store_true")
    action.add_argument("--assemble", action="store_true")
    parser.add_argument("--whole", type=int, default=WHOLE, help="sets kept whole (default %(default)s)")
    chosen = parser.parse_args(arguments)
    if chosen.record:
        record(chosen.record, chosen.whole)
        return 0
    if chosen.assemble:
        return 1 if assemble() else 0
    from evals.studies.emulator.emulated import execute

    found = list(replay(execute))
    print("\n".join(one.line() for one in found))
    return 1 if any(one.differing for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
