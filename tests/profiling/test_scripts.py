"""`cutesmith emulate --script`: somebody's script, or test suite, as it is, on the emulated GPU."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cutesmith.commands.emulate import main
from cutesmith.errors import UnavailableError
from cutesmith.profiling.scripts.endings import TimeUp, ending_of
from cutesmith.profiling.scripts.requests import ScriptRan
from cutesmith.profiling.scripts.run_script import _readable, concluded, run_script
from cutesmith.verdicts import EmulatedFault, ExitCode, FaultKind, ScriptFault, ScriptTest, ScriptVerdict

REVERSE = """\
import math
import sys

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

SYNC = "--race" not in sys.argv


@cute.kernel
def reverse(source: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    staged = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(128), 16)
    staged[thread] = source[thread]
    if cutlass.const_expr(SYNC):
        cute.arch.sync_threads()
    out[thread] = staged[127 - thread]


@cute.jit
def launch(source, out):
    reverse(source, out).launch(grid=(1, 1, 1), block=(128, 1, 1))


def reversed_on_the_gpu(source):
    out = torch.empty_like(source)
    launch(from_dlpack(source), from_dlpack(out))
    torch.cuda.synchronize()
    return out
"""

WHOLE = (
    REVERSE
    + """

class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return reversed_on_the_gpu(x)

    @staticmethod
    def backward(context, gradient):
        assert gradient.is_cuda and torch.empty(1, device="cuda").is_cuda
        return reversed_on_the_gpu(gradient.contiguous())


@torch.library.custom_op("cutesmith_test::reverse", mutates_args=(), device_types="cuda")
def reverse_op(x: torch.Tensor) -> torch.Tensor:
    return reversed_on_the_gpu(x)


if __name__ == "__main__":
    from cuda.bindings import driver, runtime

    assert driver.cuInit(0) == (driver.CUresult.CUDA_SUCCESS,)
    assert torch.cuda.get_device_capability() == (9, 0) and torch.cuda.get_device_properties(0).major == 9
    assert cutlass.utils.HardwareInfo().get_device_multiprocessor_count() > 100
    stream, begin, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    x = torch.randn(128, device="cuda", requires_grad=True)
    with torch.cuda.stream(stream):
        begin.record(stream)
        y = Reverse.apply(x)
        end.record(stream)
    end.synchronize()
    assert math.isnan(begin.elapsed_time(end))
    torch.testing.assert_close(y.detach(), x.detach().flip(0))
    weights = torch.arange(128.0, device="cuda")
    (y * weights).sum().backward()
    assert x.grad.is_cuda
    torch.testing.assert_close(x.grad, weights.flip(0))
    Reverse.apply(x).sum().backward()  # its gradient begins inside PyTorch
    torch.testing.assert_close(reverse_op(x.detach()), x.detach().flip(0))
    torch.testing.assert_close(torch.compile(lambda v: reversed_on_the_gpu(v) * 2)(x.detach()), 2 * x.detach().flip(0))

    compiled = cute.compile(launch, from_dlpack(x.detach()), from_dlpack(y.detach()))
    arguments = cutlass.testing.JitArguments(from_dlpack(x.detach()), from_dlpack(y.detach()))
    assert math.isnan(cutlass.testing.benchmark(compiled, kernel_arguments=arguments))

    error, address = driver.cuMemAlloc(16)
    host = bytearray(16)
    assert runtime.cudaMemset(address, 7, 16) == (runtime.cudaError_t.cudaSuccess,)
    assert driver.cuMemcpyDtoH(host, address, 16) == (driver.CUresult.CUDA_SUCCESS,)
    assert bytes(host) == bytes([7] * 16)
    print("all of it", sys.argv[1:])
"""
)

TESTS = (
    REVERSE
    + """
import pytest


@pytest.mark.parametrize("scale", [1, 2])
def test_right(scale):
    x = torch.randn(128, device="cuda") * scale
    torch.testing.assert_close(reversed_on_the_gpu(x), x.flip(0))


def test_wrong():
    x = torch.randn(128, device="cuda")
    torch.testing.assert_close(reversed_on_the_gpu(x), x)


def test_graph():
    with pytest.raises(ZeroDivisionError):
        torch.cuda.make_graphed_callables()


def test_swallowed_launch():
    x = torch.randn(4, device="cuda")  # far too small: the kernel reads beyond it
    with pytest.raises(Exception):
        reversed_on_the_gpu(x)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus():
    assert False
"""
)


def emulated(capfd, *words, options=()):
    """(exit code, JSON, what passed through) of a script."""
    code = main(["--json", "--timeout=60", *options, "--script", *map(str, words)])
    said = capfd.readouterr()
    fields = json.loads(said.out)
    assert fields["exit_code"] == code and fields["stage"] == "script"
    return code, fields, said.err


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A function that writes a script into an empty current folder and gives its name."""
    monkeypatch.chdir(tmp_path)

    def write(text: str, name: str = "script.py") -> str:
        (tmp_path / name).write_text(text)
        return name

    return write


@pytest.mark.slow
def test_a_script_meets_what_it_would_on_a_gpu(script, capfd):
    code, fields, printed = emulated(capfd, script(WHOLE), "--race-free", "7")
    assert code == ExitCode.PASSED, fields["summary"]
    assert "all of it ['--race-free', '7']" in printed
    (kernel,) = fields["kernels"]
    assert (kernel["kernel"], kernel["launches"], kernel["block"]) == ("reverse", 7, [128, 1, 1])
    assert any("torch.compile" in note for note in fields["notes"]) and any("NaN" in note for note in fields["notes"])
    assert fields["status"] == "emulated" and "7 launches without findings" in fields["summary"]


@pytest.mark.slow
def test_findings_stand_at_the_end_and_decide(script, capsys):
    code = main(
        ["--script", script(REVERSE + "\nprint(reversed_on_the_gpu(torch.ones(128, device='cuda')).sum())\n"), "--race"]
    )
    printed = capsys.readouterr().out
    assert code == ExitCode.CRASHED
    assert re.search(r"findings\n  FAULT race at script\.py:\d+", printed)
    assert printed.index("tensor(") < printed.index("findings") < printed.rindex("race: script.py: race at script.py")


@pytest.mark.slow
def test_pytest_runs_with_every_test_told_apart(script, capfd):
    code, fields, printed = emulated(capfd, "-m", "pytest", "-q", script(TESTS, "test_reverse.py"))
    outcomes = {test["name"].split("::")[1]: test["outcome"] for test in fields["tests"]}
    assert outcomes == {
        "test_right[1]": "passed",
        "test_right[2]": "passed",
        "test_wrong": "failed",
        "test_graph": "not executed",
        "test_swallowed_launch": "passed",
        "test_two_gpus": "skipped",
    }
    assert {fault["test"] for fault in fields["faults"]} == {"test_reverse.py::test_swallowed_launch"}
    assert "out_of_bounds" in {fault["fault"]["kind"] for fault in fields["faults"]}  # a finding all the same
    assert code == ExitCode.CRASHED and "6 tests: 3 passed, 1 failed, 1 not executed, 1 skipped" in fields["summary"]
    assert "test_wrong" in printed and "Mismatched elements" in printed


REFUSED = """\
import ctypes
import os
import subprocess

import torch
import triton
import triton.language as tl
from cuda.bindings import driver


@triton.jit
def scale(x, n: tl.constexpr):
    pass


class Cache(triton.runtime.cache.FileCacheManager):
    pass


assert triton.cdiv(5, 2) == 3 and triton.next_power_of_2(5) == 8
for refused in (
    lambda: triton.testing.do_bench(lambda: None),
    lambda: scale[(1,)](1, n=2),
    lambda: torch.distributed.init_process_group("nccl"),
    lambda: torch.cuda.nccl.version(),
    lambda: torch.ones(4, device="cuda:1"),
    lambda: torch.ones(4).cuda(1),
    lambda: ctypes.CDLL("libcublas.so.12"),
    lambda: torch.cuda.make_graphed_callables(),
    lambda: driver.cuModuleLoad(b"x"),
    lambda: open("/etc/hostname").read(),
    lambda: open("left.txt", "w"),
    lambda: subprocess.run(["true"]),
):
    try:
        refused()
    except Exception as error:
        print("refused", type(error).__name__, error)
    else:
        raise SystemExit("not refused")
open(os.path.join(os.environ["TMPDIR"], "mine.txt"), "w").close()
import no_such_package_xyz
"""


@pytest.mark.slow
def test_what_a_script_cannot_have_is_refused_by_name(script, capfd):
    code, fields, printed = emulated(capfd, script(REFUSED))
    assert code == ExitCode.UNAVAILABLE and "needs the package no_such_package_xyz" in fields["summary"]
    refusals = [line for line in printed.splitlines() if line.startswith("refused")]
    names = "do_bench `scale` NCCL NCCL cuda:1 cuda:1 libcublas.so make_graphed_callables cuModuleLoad".split()
    names += ["Permission"] * 3
    assert len(refusals) == len(names)
    assert all(name in line for name, line in zip(names, refusals, strict=True)), refusals
    assert not Path("left.txt").exists()


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (AssertionError("not one"), ExitCode.WRONG_RESULT, "not one"),
        (SystemExit(3), ExitCode.CRASHED, "exit code 3"),
        (ZeroDivisionError("division by zero"), ExitCode.CRASHED, "ZeroDivisionError"),
        (ModuleNotFoundError("x", name="no_such_package_xyz.a"), ExitCode.UNAVAILABLE, "no_such_package_xyz"),
        (ModuleNotFoundError("cutlass.nothing", name="cutlass.nothing"), ExitCode.CRASHED, "cutlass.nothing"),
        (UnavailableError("no CUDAGraph"), ExitCode.UNAVAILABLE, "no CUDAGraph"),
        (TimeUp(), ExitCode.TIMED_OUT, "within 9 s"),
    ],
)
def test_an_exception_has_the_exit_code_of_its_class(raised, code, words):
    told = ending_of(raised, Path("script.py"), 9)
    assert told is not None and (told.exit_code, words in told.message) == (code, True)
    assert ending_of(SystemExit(0), Path("script.py"), 9) is None


def test_cuda_that_is_built_at_run_time_is_refused_by_the_name_of_its_compiler():
    from torch.utils.cpp_extension import load_inline

    try:
        load_inline(name="scale", cpp_sources="", cuda_sources="__global__ void k() {}", functions=[])
    except Exception as error:
        told = ending_of(error, Path("script.py"), 9)
    assert told is not None and told.exit_code == ExitCode.UNAVAILABLE and "CUDA's compiler" in told.message


def test_what_an_exception_was_raised_from_counts():
    try:
        try:
            raise UnavailableError("no tcgen05")
        except UnavailableError as error:
            raise RuntimeError("the autotuner found no configuration") from error
    except RuntimeError as error:
        told = ending_of(error, Path("script.py"), 9)
    assert told is not None and told.exit_code == ExitCode.UNAVAILABLE


@pytest.mark.slow
def test_a_script_that_does_not_end_is_interrupted_and_keeps_what_it_did(script):
    text = REVERSE + "\nreversed_on_the_gpu(torch.ones(128, device='cuda'))\nwhile True:\n    pass\n"
    verdict = run_script([script(text)], timeout=8)
    assert (verdict.exit_code, [k.launches for k in verdict.kernels]) == (ExitCode.TIMED_OUT, [1])


def test_an_architecture_that_is_not_emulated_and_wrong_uses_are_sentences(script, capsys):
    name = script("")
    assert main(["--arch", "sm_70", "--script", name]) == ExitCode.UNAVAILABLE
    assert "sm_70" in capsys.readouterr().err
    for words in (
        ["--script"],
        ["--script", "-m"],
        ["--script", "missing.py"],
        ["--profile", "--script", name],
        ["--env", "A", "--script", name],
        ["--read", ".", name],
        [],
    ):
        assert main(words) == ExitCode.USAGE, words
        assert capsys.readouterr().err.startswith("error: ")


BLANK = ScriptVerdict(exit_code=ExitCode.PASSED, summary="", script=("-m", "pytest"), arch="sm_90a")


def concluded_of(*tests: ScriptTest, faults=()) -> ScriptVerdict:
    reply = ScriptRan(kernels=(), faults=faults, tests=tests, notes=(), confinement={}, error=None)
    return concluded(BLANK, reply, "-m pytest", "")


FAULT = EmulatedFault(kind=FaultKind.RACE, message="unordered", where="k.py:3", thread=(0, 0, 0), block=(0, 0, 0))


def test_the_worst_test_decides_and_skips_alone_are_no_pass():
    passed, skipped = ScriptTest("a", "passed"), ScriptTest("b", "skipped", reason="needs sm_100")
    lacking = ScriptTest("c", "not executed", ExitCode.UNAVAILABLE, "no tcgen05")
    failed = ScriptTest("d", "failed", ExitCode.WRONG_RESULT, "not equal")
    assert concluded_of(passed, lacking).exit_code == ExitCode.UNAVAILABLE
    assert concluded_of(passed, lacking, failed).exit_code == ExitCode.WRONG_RESULT
    assert "every test was skipped: needs sm_100" in concluded_of(skipped).summary
    assert concluded_of(skipped).exit_code == ExitCode.UNAVAILABLE
    assert concluded_of(passed).exit_code == ExitCode.USAGE  # it launched nothing
    fault = ScriptFault("k", "a", FAULT)
    assert concluded_of(passed, failed, faults=(fault,)).exit_code == ExitCode.CRASHED


def test_a_home_folder_is_never_readable_as_a_whole(tmp_path, monkeypatch):
    (tmp_path / "s.py").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert _readable([str(tmp_path / "s.py")], tmp_path) == ((tmp_path / "s.py").resolve(),)
    monkeypatch.setenv("HOME", "/elsewhere")
    assert tmp_path.resolve() in _readable([str(tmp_path / "s.py")], tmp_path.resolve())
