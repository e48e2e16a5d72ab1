#!/usr/bin/env python3
"""The copy engine (bulk copies, tensor maps, `st.async`): the emulated GPU against a real one, byte by byte.

python evals/studies/emulator/record_copies.py --replay    anywhere: run the PTX of the recording and compare
python evals/studies/emulator/record_copies.py --assemble  anywhere with ptxas: do all cases assemble?

The cases are in `copy_cases.py`. Of each set a checksum is kept, of the first sets all bytes; of each map of the driver
its 128 bytes, with the address counted from the tensor. `record_further.py --again` records them on a GPU, also those
that were not recorded when this recording was made.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

from cutesmith.emulator.program.abi import Array  # noqa: E402
from evals.studies.emulator.copy_cases import CASES, SWIZZLES, TYPES, CopyCase, MapArguments  # noqa: E402
from evals.studies.emulator.copy_kernels import HEADERS  # noqa: E402

RECORDING = ROOT / "evals/results/emulator/copies/h200.npz"


# ---------------------------------------------------------------------------------------------------------- on a GPU


def encoded(gpu: Any, case: CopyCase, maps: list[bytes], out: int, given: int) -> bytes:
    """The map of a case by the driver, zeros where it has none; `maps` gets it with the address of its tensor as 0."""
    if case.map is None:
        return bytes(128)
    address = given + HEADERS if case.results else out
    data = _driver_map(gpu, case.map, address)
    maps.append((int.from_bytes(data[:8], "little") - address).to_bytes(8, "little", signed=True) + data[8:])
    return data


def _driver_map(gpu: Any, map: MapArguments, address: int) -> bytes:
    def integers(kind: Any, values: tuple[int, ...]) -> Any:
        return (kind * max(1, len(values)))(*values)

    rank, code = ctypes.c_uint32(len(map.sizes)), ctypes.c_int(TYPES[map.kind])
    shape = (code, rank, ctypes.c_uint64(address), integers(ctypes.c_uint64, map.sizes), integers(ctypes.c_uint64, map.strides))  # noqa: E501  # fmt: skip
    steps, codes = integers(ctypes.c_uint32, map.steps), (map.interleave, SWIZZLES[map.swizzle], 0, map.fill)
    tail = (steps, *map_integers(codes))
    if map.corners is None:
        return bytes(gpu.tensor_map("cuTensorMapEncodeTiled", *shape, integers(ctypes.c_uint32, map.box), *tail))
    corners = [integers(ctypes.c_int, corner) for corner in map.corners]
    counts = (ctypes.c_uint32(map.box[0]), ctypes.c_uint32(map.box[1]))
    return bytes(gpu.tensor_map("cuTensorMapEncodeIm2col", *shape, *corners, *counts, *tail))


def map_integers(codes: tuple[int, ...]) -> list[ctypes.c_int]:
    """Codes as the driver takes them."""
    return [ctypes.c_int(code) for code in codes]


# --------------------------------------------------------------------------------------------------------- both sides


def kept_of(case: CopyCase, results: Array, whole: int) -> dict[str, Array]:
    """What a recording keeps of a case's output (uint8)."""
    sets = sets_of(case, results)
    return {"whole": sets[:whole], "checksums": np.array([zlib.crc32(one.tobytes()) for one in sets], np.uint32)}


def sets_of(case: CopyCase, results: Array) -> Array:
    """uint8 (sets, bytes), or (1, bytes) where the output is a tensor."""
    return results.reshape(case.sets if case.results else 1, -1)


@dataclass(frozen=True)
class Comparison:
    """One case: the sets that differ, and the first differing byte of those kept whole."""

    case: CopyCase
    differing: tuple[int, ...]
    example: str = ""

    def line(self) -> str:
        """A row of the table."""
        verdict = f"sets {self.differing} differ{self.example}" if self.differing else "equal"
        return f"{'FAIL' if self.differing else 'ok  '} {self.case.name:40} {verdict}"


def run(case: CopyCase) -> Array:
    """The output on the emulated GPU (uint8)."""
    from evals.studies.emulator.emulated import launch

    inputs, before = case.inputs(), case.before()
    return launch(case.ptx(), inputs, before, case.sets, partial(_emulated_map, case), cluster=case.cluster)


def _emulated_map(case: CopyCase, out: int, given: int) -> bytes:
    from cutesmith.recording.tensor_map_calls import TiledMapCall

    map, address = case.map, given + HEADERS if case.results else out
    if map is None:
        return bytes(128)
    shape = (map.sizes, map.strides, map.box, map.steps if map.interleave else (1, *map.steps[1:]))
    codes = (SWIZZLES[map.swizzle], map.fill, map.corners, map.interleave)
    return TiledMapCall(address, TYPES[map.kind], *shape, *codes).pack()


def compare(case: CopyCase, results: Array, recording: Any) -> Comparison:
    """The emulator's output against the recording."""
    kept = kept_of(case, results, len(recording[f"{case.name} whole"]))
    differing = np.flatnonzero(kept["checksums"] != recording[f"{case.name} checksums"])
    wrong = np.argwhere(kept["whole"] != recording[f"{case.name} whole"])
    example = ""
    if len(wrong):
        one, byte = (int(index) for index in wrong[0])
        here, there = (int(values[one, byte]) for values in (kept["whole"], recording[f"{case.name} whole"]))
        example = f"; {len(wrong)} bytes; set {one} byte {byte}: hardware {there:#x}, emulator {here:#x}"
    return Comparison(case, tuple(int(index) for index in differing), example)


def replay(only: str, path: Path) -> Iterator[Comparison]:
    """Compare every case whose name contains `only` with the recording; those that the driver refused are left out."""
    recording = np.load(path)
    for case in CASES:
        if only in case.name and f"{case.name} whole" in recording:
            yield compare(case, run(case), recording)


def assemble() -> int:
    """Assemble every case, name those that ptxas refuses; the number of them."""
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "test.ptx"
        for case in CASES:
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
    action.add_argument("--replay", action="store_true")
    action.add_argument("--assemble", action="store_true")
    parser.add_argument("--only", default="", help="replay only cases whose name contains this")
    parser.add_argument("--recording", type=Path, default=RECORDING, help="the file to replay")
    chosen = parser.parse_args(arguments)
    if chosen.assemble:
        return 1 if assemble() else 0
    found = list(replay(chosen.only, chosen.recording))
    print("\n".join(one.line() for one in found))
    return 1 if any(one.differing for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
