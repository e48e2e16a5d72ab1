"""Every planted fault is found at its line, and every corrected twin is silent and right."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cutesmith.emulator.device import emulated_device
from cutesmith.emulator.errors import EmulationError
from cutesmith.emulator.machine.settings import Settings
from cutesmith.problems.loading import load_file

FOLDER = Path(__file__).resolve().parent.parent.parent / "evals" / "planted_faults"
FAULTS = sorted(FOLDER.glob("*.py"), key=lambda path: path.stem)
MARK = re.compile(r"# fault: (\w+)")
ARCH = re.compile(r'^ARCH = "(\w+)"$', re.MULTILINE)
ORDERS = re.compile(r"^ORDERS = (\d+)", re.MULTILINE)
QUICK = Settings(step_limit=200_000)


def planted(path):
    """(kind, line) of the fault that the file marks."""
    found = [(match[1], number) for number, line in enumerate(path.read_text().splitlines(), 1) if (match := MARK.search(line))]  # noqa: E501  # fmt: skip
    assert len(found) == 1, f"{path.name} marks {len(found)} faults"
    return found[0]


def lines_of(location, path):
    """Lines of the file in a location's chain of callers."""
    lines = set()
    while location is not None:
        if Path(location.file).name == path.name:
            lines.add(location.line)
        location = location.inlined_at
    return lines


def arch_of(path):
    """The architecture that the file names, else sm_90a."""
    match = ARCH.search(path.read_text())
    return match[1] if match else "sm_90a"


def settings_of(path):
    """As many orders as the file asks for."""
    match = ORDERS.search(path.read_text())
    return replace(QUICK, orders=int(match[1]) if match else 1)


def emulate(path, name):
    """The findings of `name` in the file, its outputs (None when a fault ended it), and the reference's."""
    outputs = None
    with contextlib.suppress(EmulationError), emulated_device(arch_of(path), settings=settings_of(path)) as device:
        loaded = load_file(path)
        inputs = loaded.get_inputs()
        expected = loaded.reference_fn(*inputs).cpu()
        try:
            outputs = getattr(loaded.module, name)(*inputs).cpu()
        finally:
            device.check()
    return device.findings, outputs, expected


@pytest.mark.sampled(17)
@pytest.mark.parametrize("path", FAULTS, ids=lambda path: path.stem)
def test_a_planted_fault_is_found_at_its_line(path):
    kind, line = planted(path)
    findings, outputs, expected = emulate(path, "kernel_fn")
    if kind == "wrong_result":  # every access is allowed: only the numbers tell
        assert not findings and not torch.allclose(outputs, expected)
        return
    found = [(f.kind, sorted(lines_of(f.location, path) | lines_of(f.other, path))) for f in findings]
    assert any(k == kind and line in lines for k, lines in found), found


@pytest.mark.slow
@pytest.mark.parametrize("path", FAULTS, ids=lambda path: path.stem)
def test_the_corrected_twin_is_silent_and_right(path):
    findings, outputs, expected = emulate(path, "corrected_fn")
    assert not findings
    torch.testing.assert_close(outputs, expected)
