"""What `cutesmith emulate --script` found, as lines for people: kernels, tests that did not pass, findings."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from cutesmith.commands._emulation_tables import WIDTH, describe, dims
from cutesmith.commands._run import unconfined_lines
from cutesmith.verdicts import ScriptFault, ScriptKernel, ScriptTest, ScriptVerdict

_MOST_KERNELS = 20
_MOST_FAULTS = 40
_MOST_TESTS = 40
_LONGEST_NAME = 48


def script_table(verdict: ScriptVerdict) -> Iterator[str]:
    """The verdict as lines for people; what the script printed has passed through before."""
    yield ""
    yield from _kernels(verdict.kernels)
    yield from _tests(verdict.tests)
    yield from _findings(verdict.faults)
    for note in verdict.notes:
        yield f"note: {note}"
    yield from unconfined_lines("the script", verdict.confinement)
    yield from _wrapped(f"{verdict.status}: {verdict.summary} ({verdict.seconds:.1f} s)")
    if verdict.hint:
        yield from _wrapped(verdict.hint)


def _kernels(kernels: tuple[ScriptKernel, ...]) -> Iterator[str]:
    if not kernels:
        return
    yield f"{'launches':>8}  {'CPU s':>7}  {'lane-instr':>11}  kernel, with the grid and block of its first launch"
    for kernel in kernels[:_MOST_KERNELS]:
        name = kernel.kernel if len(kernel.kernel) <= _LONGEST_NAME else f"{kernel.kernel[: _LONGEST_NAME - 1]}…"
        counts = f"{kernel.launches:8}  {kernel.seconds:7.2f}  {kernel.instructions:11.3g}"
        yield f"{counts}  {name} {dims(kernel.grid)}, {dims(kernel.block)}"
    if len(kernels) > _MOST_KERNELS:
        yield f"{'':8}  and {len(kernels) - _MOST_KERNELS} more kernels (--json has all)"


def _tests(tests: tuple[ScriptTest, ...]) -> Iterator[str]:
    others = [test for test in tests if test.outcome != "passed"]
    if others:
        yield "tests that did not pass"
    for test in others[:_MOST_TESTS]:
        reason = " ".join(test.reason.split())[:400]
        yield from _wrapped(f"{test.name}: {reason}", f"  {test.outcome.upper()}  ", "    ")
    if len(others) > _MOST_TESTS:
        yield f"  and {len(others) - _MOST_TESTS} more (--json has all)"


def _findings(faults: tuple[ScriptFault, ...]) -> Iterator[str]:
    if faults:
        yield "findings"
    for found in faults[:_MOST_FAULTS]:
        test = f" [{found.test}]" if found.test else ""
        yield from _wrapped(f"{describe(found.fault)}, in {found.kernel}{test}", "  FAULT ", "        ")
    if len(faults) > _MOST_FAULTS:
        yield f"  and {len(faults) - _MOST_FAULTS} more (--json has all)"


def _wrapped(text: str, first: str = "", later: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=later) or [first]
