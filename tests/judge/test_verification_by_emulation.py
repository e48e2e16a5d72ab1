"""Verify where there is no GPU: kernels are executed on the emulated one, and what it finds is the verdict."""

from __future__ import annotations

from pathlib import Path

from cutesmith.verdicts import ExitCode
from tests.judge.in_process import verdict_here

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "tests" / "kernels"
FAULTS = ROOT / "evals" / "planted_faults"


def test_what_the_sanitizer_finds_is_a_crash_with_its_line():
    verdict = verdict_here(FAULTS / "race_reverse.py", on="emulator")
    assert verdict.exit_code == ExitCode.CRASHED and verdict.ran_on == "emulator"
    assert "race at race_reverse.py:" in verdict.summary and "race_reverse.py:20" in verdict.summary


def test_a_kernel_that_is_not_launched_is_refused(write_file):
    source = (KERNELS / "smem_reverse.py").read_text().replace("    _compiled(x, y)\n", "")
    verdict = verdict_here(write_file(source), on="emulator")
    assert (verdict.exit_code, verdict.rule) == (ExitCode.REJECTED, "W1"), verdict.summary
    assert "launched no CuTe kernel" in verdict.summary


def test_empty_inputs_need_no_launch_though_an_output_is_not_empty(write_file):
    source = (KERNELS / "smem_reverse.py").read_text()
    for old, new in (
        (
            "    _compiled(x, y)\n    return y",
            "    if x.numel():\n        _compiled(x, y)\n    return y, torch.zeros(2, device=x.device)",
        ),
        ("x.view(-1, THREADS).flip(1).reshape(-1)", "x.view(-1, THREADS).flip(1).reshape(-1), torch.zeros(2)"),
        (
            "def get_inputs():",
            "def get_input_sets():\n    yield [torch.randn(0, device='cuda')]\n\n\ndef get_inputs():",
        ),
        ("    if _compiled is None:", "    if _compiled is None and x.numel():"),
    ):
        assert old in source
        source = source.replace(old, new)
    verdict = verdict_here(write_file(source), on="emulator")
    assert verdict.exit_code == ExitCode.PASSED, verdict.summary


UNKNOWN = """
    cute.arch.inline_ptx("wgmma.fence.sync.aligned;")
"""


def test_an_instruction_that_is_not_executed_is_never_a_pass(write_file):
    source = (KERNELS / "smem_reverse.py").read_text().replace("    cute.arch.sync_threads()\n", UNKNOWN)
    verdict = verdict_here(write_file(source), on="emulator")
    assert verdict.exit_code == ExitCode.UNAVAILABLE and "wgmma.fence" in verdict.summary


PROBLEM = """
import torch


def reference_fn(x, y):
    return torch.relu(x) * y


def get_inputs():
    return [torch.randn(513, 256, device="cuda"), torch.randn(513, 256, device="cuda")]
"""
