"""Two processes that hold the kernel give the verdict that one gives, whatever goes wrong."""

import re
import threading
import time
from pathlib import Path

import pytest

from cutesmith.judge.ahead import ahead
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.verification import Judge, verify_kernel
from cutesmith.verdicts import CaseOutcome, ExitCode

ROOT = Path(__file__).parents[2]
KERNEL = """
import os, time
import numpy
import torch

CALLS = []

def reference_fn(x):
    return x * 2

def get_inputs():
    return [torch.randn(33, 20)]

def get_input_sets():
    yield [torch.randn(4, 6)]
    yield [torch.randn(5, 7)]

def kernel_fn(x):
    CALLS.append(tuple(x.shape))
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    y.numpy()[...] = x.numpy() * numpy.float32(2)
    {fault}
    return y
"""
FAULTS = {
    "right": ("", ExitCode.PASSED),
    "wrong everywhere": ("y.numpy()[...] += 100", ExitCode.WRONG_RESULT),
    "wrong in the second set": ("y.numpy()[...] += x.shape == (5, 7)", ExitCode.WRONG_RESULT),
    "wrong for NaN": ("y.numpy()[...] = numpy.nan_to_num(y.numpy())", ExitCode.WRONG_RESULT),
    "made for the first call": ("y.numpy()[...] += x.shape[1] != CALLS[0][1]", ExitCode.WRONG_RESULT),
    "a set is refused": ("if x.shape == (4, 6): raise ValueError('four rows')", ExitCode.CRASHED),
    "a set is cheated": ("if x.shape == (5, 7): torch.exp(x)", ExitCode.REJECTED),
    "get_inputs() is cheated": ("if x.shape == (33, 20): torch.exp(x)", ExitCode.REJECTED),
    "ends its process": ("if x.shape == (4, 6): os.kill(os.getpid(), 9)", ExitCode.CRASHED),
    "leaves its process": ("if x.shape == (33, 20): os._exit(0)", ExitCode.CRASHED),
    "hangs": ("if x.shape == (5, 7): time.sleep(1000)", ExitCode.TIMED_OUT),
    "writes outside": (
        "if x.shape == (4, 6): __import__('ctypes').c_float.from_address(y.data_ptr() - 4).value = 1",
        ExitCode.WRONG_RESULT,
    ),
}
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")


def told(verdict):
    """What a verdict says, but for values, which are of its own draws."""
    cases = [(case.name, case.outcome, case.inputs, case.rule, case.same_as) for case in verdict.cases]
    summary = re.sub(r"-?[\d.]+(e[-+]?\d+)?", "#", re.sub(r"elements are .*?(?=\(and|$)", "", verdict.summary))
    return verdict.exit_code, verdict.rule, verdict.mechanism, summary, cases


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_two_processes_say_what_one_says(tmp_path, name):
    fault, code = FAULTS[name]
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL.replace("{fault}", fault))
    limit = {} if name != "hangs" else {"timeout": 8}
    options = {"seeds": 1, "quick": True, "timeout": 60, **limit}
    one = verify_kernel(path, VerifyOptions(processes=1, **options), on="cpu")
    two = verify_kernel(path, VerifyOptions(processes=2, **options), on="cpu")
    assert one.exit_code == code, one.summary
    assert told(two) == told(one)
    assert not [phase for phase in one.phases if phase.startswith("second kernel")]
    assert [phase for phase in two.phases if phase.startswith("second kernel")] or name == "leaves its process"


@pytest.mark.slow
def test_a_second_process_that_is_killed_is_a_crash_and_no_pass(tmp_path):
    path = tmp_path / "kernel.py"
    in_the_second = "if len(CALLS) == 2 and x.shape != (33, 20): time.sleep(1000)"  # the first begins with three calls
    path.write_text(KERNEL.replace("{fault}", in_the_second))
    judge = Judge(path=path, problem=path, options=VerifyOptions(processes=2, timeout=120))

    def kill():
        while not (
            second := judge.processes and judge.processes.workers.get("second kernel")
        ) or not second.seconds.get("load"):
            time.sleep(0.01)
        time.sleep(1)
        second.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    verdict = judge.verdict("cpu")
    killer.join()
    assert verdict.exit_code == ExitCode.CRASHED and "SIGKILL" in verdict.summary, verdict.summary
    assert verdict.seconds < 60


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "code"),
    [
        ("examples_index/kernels/cluster_reduce_sm90.py", ExitCode.PASSED),
        ("evals/planted_faults/race_transpose.py", ExitCode.CRASHED),
    ],
)
def test_the_emulated_gpu_says_the_same_in_two_processes(kernel, code):
    one, two = (verify_kernel(ROOT / kernel, VerifyOptions(processes=n, quick=True), on="emulator") for n in (1, 2))
    assert one.exit_code == code, one.summary
    assert told(two) == told(one) and two.reduced == one.reduced
    assert [case.remark for case in two.cases if case.outcome is CaseOutcome.RECORDED] == [
        case.remark for case in one.cases if case.outcome is CaseOutcome.RECORDED
    ]


def test_what_runs_ahead_comes_in_order_and_raises_where_it_would_have():
    went = threading.Event()

    def numbers(last):
        yield from range(last)
        went.set()
        raise ValueError("no more")

    with ahead([iter("ab"), numbers(3), iter("never")], stop=lambda: None) as (letters, counted, behind):
        assert went.wait(10), "no one has asked for anything yet"
        assert list(letters) == ["a", "b"]
        assert [next(counted) for _ in range(3)] == [0, 1, 2]
        for ended in (counted, behind):
            with pytest.raises(ValueError, match="no more"):
                next(ended)


def test_what_runs_ahead_is_stopped_when_no_one_wants_it():
    released, asked = threading.Event(), []

    def waits():
        yield 1
        released.wait()
        raise RuntimeError("its process was killed")

    def stop():
        asked.append(1)
        released.set()

    with ahead([waits()], stop=stop) as (given,):
        assert next(given) == 1
    assert asked and not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]
