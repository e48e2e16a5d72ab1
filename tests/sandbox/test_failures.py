"""Whose fault an exception is, and its text as a verdict gives it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cutesmith.emulator.state.allocations import Allocations
from cutesmith.errors import CandidateError, ContractError, UnavailableError
from cutesmith.judge.candidate_side.kernel_file import candidate_code
from cutesmith.judge.course import Course
from cutesmith.judge.rounds import VerifyOptions, too_slow
from cutesmith.profiling.emulation_worker import Emulation
from cutesmith.profiling.requests import Emulate
from cutesmith.sandbox.child import describe
from cutesmith.sandbox.failures import mechanism_of
from cutesmith.verdicts import ExitCode, Mechanism
from tests.judge.in_process import LocalJudge, LocalWorker

KERNEL = Path("kernel.py")
RELU = Path(__file__).resolve().parents[1] / "kernels" / "relu_tvm_ffi.py"


def failure_of(action):
    with pytest.raises(CandidateError) as failed, candidate_code(KERNEL):
        action()
    return failed.value


def test_what_the_kernel_raises_is_its_fault_and_what_the_emulated_gpu_raises_is_not():
    own = failure_of(lambda: {}[7])
    assert (own.exit_code, own.message) == (ExitCode.CRASHED, "kernel.py: KeyError: 7")
    error = failure_of(lambda: Allocations().remove(7))
    assert error.exit_code == ExitCode.INTERNAL
    assert error.message == "this is a bug of cutesmith: KeyError: 7"
    assert "report it" in error.hint and "allocations.py" in error.log_tail


def test_the_emulations_own_code_is_not_the_kernel():
    with pytest.raises(CandidateError) as failed:
        Emulation().handle(Emulate())  # nothing was prepared
    assert failed.value.exit_code == ExitCode.INTERNAL
    assert "AttributeError" in failed.value.message


def test_an_error_in_colour_is_told_without():
    def fail():
        raise ValueError("\x1b[91m\x1b[1merror[CONFIG_UNSUPPORTED_ARCH]:\x1b[0m sm_80")

    error = failure_of(fail)
    assert "ValueError: error[CONFIG_UNSUPPORTED_ARCH]: sm_80" in error.message
    assert "error[CONFIG" in error.log_tail and "\x1b" not in error.log_tail


@pytest.mark.parametrize(
    ("error", "mechanism"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 6.00 GiB"), Mechanism.GPU_MEMORY),
        (RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable"), Mechanism.GPU_MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), Mechanism.MEMORY_LIMIT),
        (UnavailableError("out of memory"), Mechanism.EXCEPTION),
    ],
)
def test_which_memory_ran_out_is_told_once_by_what_was_raised(error, mechanism):
    def fail():
        raise error

    assert describe(error).mechanism is mechanism
    if not isinstance(error, UnavailableError):
        assert failure_of(fail).mechanism is mechanism
        for ours in (ContractError("told"), UnavailableError("told")):
            ours.__cause__ = error
            host = isinstance(ours, UnavailableError) and mechanism is Mechanism.MEMORY_LIMIT
            assert mechanism_of(ours) is (Mechanism.EXCEPTION if host else mechanism)


@pytest.mark.parametrize(
    ("said", "lost"),
    [
        ("CUDA error: an illegal memory access was encountered", True),
        ("CUDA_ERROR_LAUNCH_FAILED", True),
        ("cudaErrorIllegalAddress (700)", True),
        ("expected a CUDA tensor", False),
        ("error[CALL_MISSING_ARG]", False),
    ],
)
def test_a_lost_context_is_told_by_what_was_raised(said, lost):
    """Also through the error that the candidate's failure becomes, which a parent reads."""

    def fail():
        raise RuntimeError(said)

    assert describe(RuntimeError(said)).context_lost is lost
    assert describe(failure_of(fail)).context_lost is lost
    assert describe(UnavailableError(said)).context_lost is False


class Slow(LocalWorker):
    """A worker that does not answer in time."""

    def call(self, request, *, timeout=None):
        raise CandidateError(f"the kernel did not finish within {timeout:g} s", ExitCode.TIMED_OUT)


class SlowCourse(Course):
    """The cases of a candidate that loads, and then does not answer."""

    def __post_init__(self):
        self.first = replace(self.first, candidate=Slow(None))
        super().__post_init__()


class SlowJudge(LocalJudge):
    """A judge of such a candidate."""

    course = SlowCourse


def test_a_time_out_says_on_what_and_what_to_do():
    judge = SlowJudge(path=RELU, problem=RELU, options=VerifyOptions(processes=1))
    first, advice = judge.verdict("emulator").summary.split("\n")
    assert first == (
        "relu_tvm_ffi.py: get_inputs(), draws 1 and 2: the kernel did not finish within 120 s on float32[1048576] "
        "(1,048,576 elements; not shrunk further, as kernels are written for a number of columns)"
    )
    assert advice.startswith("Return fewer elements from get_inputs()")


def test_the_emulation_tells_its_inputs_before_the_call():
    error = CandidateError("the kernel did not finish within 3 s", ExitCode.TIMED_OUT)
    told = too_slow(error, "float32[4096, 4096]", "16,777,216 elements; not shrunk, as --full asks")
    assert told.message.endswith("3 s on float32[4096, 4096] (16,777,216 elements; not shrunk, as --full asks)")
    assert "--timeout" in told.hint
