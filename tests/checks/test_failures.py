"""Whose fault an exception is, and its text as a verdict gives it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutesmith.checks.candidate import candidate_code
from cutesmith.checks.emulation_worker import Emulation
from cutesmith.emulator.machine.allocations import Allocations
from cutesmith.errors import CandidateError
from cutesmith.verdicts import ExitCode

KERNEL = Path("kernel.py")


def failure_of(action):
    with pytest.raises(CandidateError) as failed, candidate_code(KERNEL):
        action()
    return failed.value


def test_what_the_emulated_gpu_raises_is_not_the_kernels_fault():
    error = failure_of(lambda: Allocations().remove(7))
    assert error.exit_code == ExitCode.INTERNAL
    assert error.message == "this is a bug of cutesmith: KeyError: 7"
    assert "report it" in error.hint and "allocations.py" in error.log_tail


def test_what_the_kernel_raises_is():
    error = failure_of(lambda: {}[7])
    assert (error.exit_code, error.message) == (ExitCode.CRASHED, "kernel.py: KeyError: 7")


def test_the_emulations_own_code_is_not_the_kernel():
    with pytest.raises(CandidateError) as failed:
        Emulation().handle({"do": "emulate"})  # without a path
    assert failed.value.exit_code == ExitCode.INTERNAL
    assert "KeyError: 'path'" in failed.value.message


def test_an_error_in_colour_is_told_without():
    def fail():
        raise ValueError("\x1b[91m\x1b[1merror[CONFIG_UNSUPPORTED_ARCH]:\x1b[0m sm_80")

    error = failure_of(fail)
    assert "ValueError: error[CONFIG_UNSUPPORTED_ARCH]: sm_80" in error.message
    assert "error[CONFIG" in error.log_tail and "\x1b" not in error.log_tail
