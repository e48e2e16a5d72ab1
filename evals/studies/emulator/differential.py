#!/usr/bin/env python3
"""Single PTX instructions: the emulated GPU against a real one, over edge values and random bits.

python evals/studies/emulator/differential.py --record   on a machine with a GPU: run every form, keep what it wrote
python evals/studies/emulator/differential.py --replay   anywhere: run the same PTX on the emulator and compare
python evals/studies/emulator/differential.py --replay --group float --only fma
python evals/studies/emulator/differential.py --assemble   anywhere with ptxas: do all forms assemble for sm_90a?

The forms are in `instruction_forms.py`. Operands come from a counter hash, so that only results are stored. The table
says for each form: equal, or how many vectors differ, the distances in ulp and the worst example; the exit code is 1 if
any form differs or is not executed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

from evals.studies.emulator.instruction_forms import KINDS, Form, forms  # noqa: E402
from evals.studies.emulator.instruction_operands import operands  # noqa: E402

DATA = ROOT / "evals" / "results" / "emulator" / "instructions"
BATCH = 40  # forms a kernel: ptxas and the emulator's compiler both take longer than linearly
THREADS = 128
HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"
Words = np.ndarray[Any, np.dtype[np.uint64]]
Execute = Callable[[str, Words, int], Words]
"""(PTX text of an entry `test`, input words, output words) -> output words; 1 thread a vector."""


@dataclass(frozen=True)
class Batch:
    """Forms with the same number of vectors, as one kernel."""

    forms: tuple[Form, ...]

    @property
    def count(self) -> int:
        """Vectors of each form: one thread each."""
        return self.forms[0].count

    def inputs(self) -> Words:
        """All columns of operands, one 64-bit word a value: shape (columns, count)."""
        columns = [operands(kind, place, self.count) for kind, place in self._columns()]
        return np.stack(columns) if columns else np.zeros((1, self.count), np.uint64)

    def output_columns(self) -> int:
        """Words that each thread writes."""
        return sum(len(form.destinations) for form in self.forms)

    def ptx(self) -> str:
        """The kernel `test(out, in)`."""
        place = {column: number for number, column in enumerate(self._columns())}
        written = iter(range(self.output_columns()))
        bodies = [self._body(index, form, place, written) for index, form in enumerate(self.forms)]
        return f"{HEADER}{_PROLOGUE.replace('THREADS', str(THREADS))}{''.join(bodies)}\tret;\n}}\n"

    def _columns(self) -> list[tuple[str, int]]:
        return sorted({(kind, place) for form in self.forms for place, kind in enumerate(form.sources)})

    def _body(self, index: int, form: Form, place: dict[tuple[str, int], int], written: Iterator[int]) -> str:
        sources = [f"%x{index}_{number}" for number in range(len(form.sources))]
        targets = [f"%y{index}_{number}" for number in range(len(form.destinations))]
        loads = [
            _load(name, kind, 8 * self.count * place[kind, number])
            for number, (name, kind) in enumerate(zip(sources, form.sources))
        ]
        stores = [_store(name, kind, 8 * self.count * next(written)) for name, kind in zip(targets, form.destinations)]
        declared = [(name, kind) for name, kind in zip(sources + targets, form.sources + form.destinations)]
        registers = "".join(f"\t.reg .{_register(kind)} {name};\n" for name, kind in declared)
        return f"{registers}{''.join(loads)}{form.ptx(targets, sources)}\n{''.join(stores)}"


_PROLOGUE = """
.visible .entry test(.param .b64 out, .param .b64 in)
.reqntid THREADS, 1, 1
{
	.reg .b64 %in, %out, %offset;
	.reg .b32 %thread, %block, %word;
	.reg .pred %bit;
	ld.param.b64 %in, [in];
	ld.param.b64 %out, [out];
	mov.u32 %thread, %tid.x;
	mov.u32 %block, %ctaid.x;
	mad.lo.s32 %thread, %block, THREADS, %thread;
	mul.wide.u32 %offset, %thread, 8;
	add.s64 %in, %in, %offset;
	add.s64 %out, %out, %offset;
"""


def _register(kind: str) -> str:
    return "pred" if kind == "p" else f"b{max(16, KINDS[kind])}"


def _load(name: str, kind: str, offset: int) -> str:
    if kind == "p":
        return f"\tld.global.b32 %word, [%in+{offset}];\n\tsetp.ne.b32 {name}, %word, 0;\n"
    return f"\tld.global.{_register(kind)} {name}, [%in+{offset}];\n"


def _store(name: str, kind: str, offset: int) -> str:
    if kind == "p":
        return f"\tselp.b32 %word, 1, 0, {name};\n\tst.global.b32 [%out+{offset}], %word;\n"
    return f"\tst.global.{_register(kind)} [%out+{offset}], {name};\n"


def batches(selected: Iterable[Form], size: int = BATCH) -> list[Batch]:
    """The forms in kernels of at most `size`, those of one vector count together."""
    ordered = sorted(selected, key=lambda form: form.count)
    equal_counts = (list(group) for _, group in groupby(ordered, key=lambda form: form.count))
    return [Batch(tuple(group[start : start + size])) for group in equal_counts for start in range(0, len(group), size)]


def run(batch: Batch, execute: Execute) -> dict[Form, Words]:
    """What each form wrote: words of shape (destinations, count)."""
    words = execute(batch.ptx(), batch.inputs(), batch.output_columns() * batch.count)
    columns = iter(words.reshape(-1, batch.count))
    return {form: np.stack([next(columns) for _ in form.destinations]) for form in batch.forms}


def select(group: str, only: str) -> list[Form]:
    """Forms of a group ("" for all) whose text starts with `only`."""
    return [
        form for name, table in forms().items() if group in ("", name) for form in table if form.text.startswith(only)
    ]


# Kept results ---------------------------------------------------------------------------------------------------------


def save(folder: Path, group: str, results: dict[Form, Words], device: str) -> Path:
    """One compressed file a group: byte planes of every word, and what they belong to."""
    folder.mkdir(parents=True, exist_ok=True)
    planes = [
        _planes(column, kind) for form, words in results.items() for column, kind in zip(words, form.destinations)
    ]
    table = [[form.text, form.count, _checksum(form)] for form in results]
    path = folder / f"{group}.npz"
    header = np.frombuffer(json.dumps({"device": device, "forms": table}).encode(), np.uint8)
    np.savez_compressed(path, header=header, planes=np.concatenate(planes))
    return path


def load(folder: Path, group: str) -> dict[str, Words]:
    """Kept words by form text; raises ValueError where a form's operands are no longer those that were recorded."""
    kept = np.load(folder / f"{group}.npz")
    table = json.loads(kept["header"].tobytes())["forms"]
    planes, start, found = kept["planes"], 0, {}
    for text, count, checksum in table:
        form = Form(text, count)
        if _checksum(form) != checksum:
            raise ValueError(f"operands of `{text}` have changed since they were recorded: record again")
        columns = []
        for kind in form.destinations:
            size = _bytes(kind)
            columns.append(_word(planes[start : start + size * count].reshape(size, count)))
            start += size * count
        found[text] = np.stack(columns)
    return found


def _bytes(kind: str) -> int:
    return max(1, KINDS[kind] // 8) if kind == "p" else max(16, KINDS[kind]) // 8


def _planes(column: Words, kind: str) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(column.view(np.uint8).reshape(-1, 8)[:, : _bytes(kind)].T).ravel()


def _word(planes: np.ndarray[Any, Any]) -> Words:
    padded = np.zeros((planes.shape[1], 8), np.uint8)
    padded[:, : planes.shape[0]] = planes.T
    return padded.view(np.uint64).ravel()


def _checksum(form: Form) -> int:
    columns = [operands(kind, place, form.count) for place, kind in enumerate(form.sources)]
    return zlib.crc32(b"".join(column.tobytes() for column in columns))


# Comparison -----------------------------------------------------------------------------------------------------------

FLOATS = {"f16": (16, 10), "bf16": (16, 7), "f32": (32, 23), "f64": (64, 52), "f16x2": (16, 10), "bf16x2": (16, 7)}
"""Bits and mantissa bits of the parts of each float kind."""


@dataclass(frozen=True)
class Comparison:
    """One form: how many vectors differ, the largest distance in ulp, the histogram of distances, one example."""

    form: Form
    differing: int
    ulp: int
    histogram: dict[int, int]
    example: str = ""

    def line(self) -> str:
        """A row of the table."""
        verdict = "equal" if not self.differing else f"{self.differing} of {self.form.count} differ, {self.ulp} ulp"
        spread = " " + " ".join(f"{d:+d}:{n}" for d, n in sorted(self.histogram.items())[:7]) if self.differing else ""
        return f"{'FAIL' if self.differing else 'ok  '} {self.form.text:60} {verdict}{spread}{self.example}"


def compare(form: Form, expected: Words, actual: Words) -> Comparison:
    """The hardware's words against the emulator's."""
    distances = np.concatenate([_ulp(e, a, kind) for e, a, kind in zip(expected, actual, form.destinations)])
    differing = np.flatnonzero(distances)
    histogram = dict(Counter(distances.tolist()).most_common(7)) if len(differing) else {}
    if not len(differing):
        return Comparison(form, 0, 0, {})
    worst = int(np.abs(distances).argmax()) % form.count
    return Comparison(
        form, len(differing), int(np.abs(distances).max()), histogram, _example(form, expected, actual, worst)
    )


def _ulp(expected: Words, actual: Words, kind: str) -> np.ndarray[Any, Any]:
    """Signed distance of each vector in units of the last place; kinds that are not floats: 2^62 where they differ."""
    differ = expected != actual
    if kind not in FLOATS:
        return np.where(differ, 2**62, 0)
    bits, mantissa = FLOATS[kind]
    distance = np.zeros(expected.shape, np.int64)
    for part in range(KINDS[kind] // bits):
        mask, shift = np.uint64((1 << bits) - 1), np.uint64(part * bits)
        parts = [(words >> shift) & mask for words in (expected, actual)]
        one = _ordered(parts[1], bits) - _ordered(parts[0], bits)
        special = [
            part_ & np.uint64((1 << bits - 1) - 1) > np.uint64(((1 << bits - 1 - mantissa) - 1) << mantissa)
            for part_ in parts
        ]
        one = np.where((special[0] | special[1]) & (parts[0] != parts[1]), 2**62, one)
        distance = np.where(np.abs(one) > np.abs(distance), one, distance)
    return np.where(differ & (distance == 0), 2**62, distance)  # the sign of zero, bits above the value


def _ordered(words: Words, bits: int) -> np.ndarray[Any, Any]:
    magnitude = (words & np.uint64((1 << bits - 1) - 1)).astype(np.int64)
    return np.where(words >> np.uint64(bits - 1) & np.uint64(1), -magnitude, magnitude)


def _example(form: Form, expected: Words, actual: Words, row: int) -> str:
    digits = [max(1, KINDS[kind] // 4) for kind in form.sources]
    given = [operands(kind, place, form.count)[row] for place, kind in enumerate(form.sources)]
    shown = " ".join(f"{value & np.uint64(2**64 - 1):0{size}x}" for value, size in zip(given, digits))
    results = [" ".join(f"{int(word):x}" for word in words[:, row]) for words in (expected, actual)]
    return f"\n       ({shown}) -> hardware {results[0]}, emulator {results[1]}"


# The two machines -----------------------------------------------------------------------------------------------------


def assemble(selected: list[Form]) -> int:
    """Assemble every form on its own kernel, name those that ptxas refuses; the number of them."""
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        for batch in batches(selected):
            if _ptxas(batch.ptx(), folder):
                for form in batch.forms:
                    message = _ptxas(Batch((form,)).ptx(), folder)
                    refused += bool(message)
                    print(f"{form.text}: {message.splitlines()[0]}" if message else "", end="\n" if message else "")
    return refused


def _ptxas(text: str, folder: str) -> str:
    path = Path(folder) / "test.ptx"
    path.write_text(text)
    command = ["ptxas", "-O1", "-arch=sm_90a", "-o", str(path.with_suffix(".cubin")), str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr + done.stdout if done.returncode else ""


def record(selected_groups: list[str], folder: Path) -> int:
    """Run every form on the GPU of this machine and keep what it wrote."""
    from evals.studies.emulator.driver import Gpu

    gpu = Gpu()
    for group in selected_groups:
        results: dict[Form, Words] = {}
        for batch in batches(forms()[group]):
            results |= run(batch, gpu.execute)
        path = save(folder, group, results, gpu.name)
        print(f"{group}: {len(results)} forms, {path.stat().st_size} bytes")
    return 0


@dataclass(frozen=True)
class Refusal:
    """A form that the emulator does not execute, and what it says."""

    form: Form
    reason: str

    def line(self) -> str:
        """A row of the table."""
        return f"NONE {self.form.text:60} {self.reason}"


def replay(selected: list[Form], kept: dict[str, Words], execute: Execute) -> list[Comparison | Refusal]:
    """Compare every form; one that the emulator refuses comes back with the reason."""
    found: list[Comparison | Refusal] = []
    for batch in batches([form for form in selected if form.text in kept]):
        for one, outcome in _attempt(batch, execute):
            refused = isinstance(outcome, str)
            found.append(Refusal(one, outcome) if refused else compare(one, kept[one.text], outcome))
    return found


def _attempt(batch: Batch, execute: Execute) -> Iterator[tuple[Form, Words | str]]:
    from cutesmith.errors import CutesmithError

    try:
        yield from run(batch, execute).items()
    except CutesmithError as error:
        if len(batch.forms) == 1:
            yield batch.forms[0], str(error)
            return
        half = len(batch.forms) // 2
        yield from _attempt(Batch(batch.forms[:half]), execute)
        yield from _attempt(Batch(batch.forms[half:]), execute)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0: every form gives the recorded bits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    for name in ("record", "replay", "assemble"):
        action.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--folder", type=Path, default=DATA, help="where results are kept")
    parser.add_argument("--group", default="", choices=["", *forms()], help="one group of forms")
    parser.add_argument("--only", default="", help="forms whose text starts so")
    parser.add_argument("--brief", action="store_true", help="print only forms that are not equal")
    chosen = parser.parse_args(arguments)
    groups = [chosen.group] if chosen.group else list(forms())
    if chosen.record:
        return record(groups, chosen.folder)
    if chosen.assemble:
        return 1 if assemble(select(chosen.group, chosen.only)) else 0
    return _replayed(groups, chosen)


def _replayed(groups: list[str], chosen: argparse.Namespace) -> int:
    from evals.studies.emulator.emulated import execute

    failed = 0
    for group in groups:
        kept = load(chosen.folder, group)
        found = replay(select(group, chosen.only), kept, execute)
        missing = [one for one in found if isinstance(one, Refusal)]
        differing = [one for one in found if isinstance(one, Comparison) and one.differing]
        failed += len(missing) + len(differing)
        for one in differing + missing if chosen.brief else found:
            print(one.line())
        equal = len(found) - len(differing) - len(missing)
        print(f"{group}: {len(found)} forms, {equal} equal, {len(differing)} differ, {len(missing)} not executed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
