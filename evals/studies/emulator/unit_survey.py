#!/usr/bin/env python3
"""Every mantissa of the approximate functions: the emulated multi-function unit against the one of a real GPU.

python evals/studies/emulator/unit_survey.py --record  on a machine with a GPU: checksums of all results (2^28 of them)
python evals/studies/emulator/unit_survey.py --replay  anywhere, minutes: the same from the emulator; names what differs
python evals/studies/emulator/unit_survey.py --replay --sample   one stretch of 2^16 results of each range, in seconds

A range is a run of patterns through one or two powers of two, where the whole mantissa counts. Results are kept as one
CRC-32 for each 2^16 of them; the functions are those of `cutesmith/emulator/emitters/unit.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

from evals.studies.emulator.differential import HEADER, Execute  # noqa: E402
from evals.studies.emulator.driver import THREADS  # noqa: E402

DATA = ROOT / "evals" / "results" / "emulator" / "instructions" / "unit.json"
STRETCH = 1 << 16
_BINADE = 1 << 23
_AT_ONCE = 1 << 21


@dataclass(frozen=True)
class Range:
    """`count` patterns of an operand from `first` on; `bits` of the operand: 16, 32, or 64 for an f64's upper half."""

    instruction: str
    first: int
    count: int
    bits: int = 32

    @property
    def name(self) -> str:
        """Such as "rcp.approx.ftz.f32 from 3f800000"."""
        return f"{self.instruction} from {self.first:0{min(self.bits, 32) // 4}x}"

    def patterns(self, size: int) -> Iterator[np.ndarray[Any, np.dtype[np.uint64]]]:
        """The patterns, at most `size` at a time."""
        for start in range(self.first, self.first + self.count, size):
            yield np.arange(start, min(start + size, self.first + self.count), dtype=np.uint64)

    def ptx(self) -> str:
        """The kernel `test(out, in)` on one stretch."""
        return _KERNEL.replace("BODY", _BODIES[self.bits].replace("OP", self.instruction))


_KERNEL = f"""{HEADER}
.visible .entry test(.param .b64 out, .param .b64 in)
.reqntid {THREADS}, 1, 1
{{
	.reg .b64 %in, %out, %offset, %wide, %result;
	.reg .b32 %thread, %block, %x, %y, %rest;
	.reg .b16 %half, %other;
	ld.param.b64 %in, [in];
	ld.param.b64 %out, [out];
	mov.u32 %thread, %tid.x;
	mov.u32 %block, %ctaid.x;
	mad.lo.s32 %thread, %block, {THREADS}, %thread;
	mul.wide.u32 %offset, %thread, 8;
	add.s64 %in, %in, %offset;
	add.s64 %out, %out, %offset;
	ld.global.b32 %x, [%in];
BODY	st.global.b32 [%out], %y;
	ret;
}}
"""
_BODIES = {
    16: "\tcvt.u16.u32 %half, %x;\n\tOP %other, %half;\n\tcvt.u32.u16 %y, %other;\n",
    32: "\tOP %y, %x;\n",
    64: "\tmov.b64 %wide, {0, %x};\n\tOP %result, %wide;\n\tmov.b64 {%rest, %y}, %result;\n",
}


def _pattern(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def _ranges() -> tuple[Range, ...]:
    found = [Range("rcp.approx.ftz.f32", _pattern(1), _BINADE)]
    found += [Range(f"{name}.approx.ftz.f32", _pattern(1), 2 * _BINADE) for name in ("rsqrt", "sqrt")]
    places = {
        "lg2.approx.ftz.f32": (0.25, 0.5, 1, 4),
        "ex2.approx.ftz.f32": (0.25, 0.5, 1, 2, 64, -0.25, -0.5, -1, -8, -64),
        "sin.approx.ftz.f32": (0.125, 0.5, 1, 2, 4, -1),
        "cos.approx.ftz.f32": (0.125, 0.5, 1, 2, 4, -1),
        "tanh.approx.f32": (2.0**-9, 2.0**-8, 2.0**-7, 2.0**-6, 2.0**-5, 2.0**-4, 0.125, 0.25, 0.5, 1, 2, 4, 8, -0.5),
    }
    found += [Range(name, _pattern(value), _BINADE) for name, values in places.items() for value in values]
    halves = ("ex2.approx.f16", "tanh.approx.f16", "ex2.approx.ftz.bf16", "tanh.approx.bf16")
    found += [Range(name, 0, 1 << 16, 16) for name in halves]
    doubles = ("rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64")
    return (*found, *(Range(name, 0x3FF00000, 1 << 21, 64) for name in doubles))


RANGES = _ranges()


def checksums(one: Range, patterns: np.ndarray[Any, Any], execute: Execute) -> list[int]:
    """CRC-32 of the results of each stretch, as little-endian 32-bit words."""
    results = execute(one.ptx(), patterns.reshape(1, -1), len(patterns)).astype(np.uint32)
    return [zlib.crc32(stretch.tobytes()) for stretch in results.reshape(-1, STRETCH)]


def record(path: Path) -> int:
    """Run all ranges on the GPU of this machine and keep the checksums."""
    from evals.studies.emulator.driver import Gpu

    gpu = Gpu()
    kept = {
        one.name: [crc for patterns in one.patterns(_AT_ONCE) for crc in checksums(one, patterns, gpu.execute)]
        for one in RANGES
    }
    lines = ",\n".join(f' "{name}": {json.dumps(values)}' for name, values in kept.items())
    path.write_text(f'{{"device": {json.dumps(gpu.name)}, "checksums": {{\n{lines}\n}}}}\n')
    return 0


def differing(one: Range, kept: list[int], execute: Execute, sample: bool = False) -> list[int]:
    """First patterns of the stretches whose results are not the recorded ones; `sample`: the middle stretch alone."""
    if sample:
        middle = len(kept) // 2
        patterns = np.arange(STRETCH, dtype=np.uint64) + np.uint64(one.first + STRETCH * middle)
        return [int(patterns[0])] if checksums(one, patterns, execute) != [kept[middle]] else []
    found = [crc for patterns in one.patterns(_AT_ONCE) for crc in checksums(one, patterns, execute)]
    return [one.first + STRETCH * place for place, (a, b) in enumerate(zip(found, kept, strict=True)) if a != b]


def replay(path: Path, sample: bool) -> int:
    """Compare all ranges on the emulator; 1 if any stretch differs."""
    from evals.studies.emulator.emulated import execute

    kept = json.loads(path.read_text())["checksums"]
    failed = 0
    for one in RANGES:
        wrong = differing(one, kept[one.name], execute, sample)
        failed += len(wrong)
        print(f"{one.name:40} {_places(wrong) or 'equal'}", flush=True)
    return 1 if failed else 0


def _places(patterns: list[int]) -> str:
    return "differs from " + " ".join(f"{pattern:x}" for pattern in patterns[:5]) if patterns else ""


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0: all results are the recorded ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--record", action="store_true")
    action.add_argument("--replay", action="store_true")
    parser.add_argument("--file", type=Path, default=DATA, help="where checksums are kept")
    parser.add_argument("--sample", action="store_true", help="one stretch a range")
    chosen = parser.parse_args(arguments)
    return record(chosen.file) if chosen.record else replay(chosen.file, chosen.sample)


if __name__ == "__main__":
    sys.exit(main())
