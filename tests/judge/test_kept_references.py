"""A trusted reference's process may serve one judging after another, as long as no problem leaves anything behind."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cutesmith.evals.engines.jobs import CheckJob, File
from cutesmith.evals.engines.stage_process import next_job
from cutesmith.evals.settings import JudgeSettings
from cutesmith.judge.kept_references import keeping_references
from cutesmith.judge.problem_process import reference_process
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.transfer.requests import Start
from cutesmith.judge.verification import verify_kernel
from cutesmith.sandbox.child import write_frame
from cutesmith.sandbox.limits import GIB, Limits
from cutesmith.verdicts import ExitCode

PROBLEM = """
import torch
{top}
def reference_fn(x):
    {body}
    return torch.{function}(x)

def get_inputs():
    return [torch.randn(33, 20, dtype=torch.float32, device="cpu")]
"""
KERNEL = """
import torch

def kernel_fn(x):
    y = torch.empty_like(x)
    y.numpy()[...] = {expression}
    return y
"""
RELU, NEGATIVE = "x.numpy().clip(min=0)", "-x.numpy()"
LEAVES_BEHIND = {
    "default dtype": "torch.set_default_dtype(torch.float64)",
    "default device": 'torch.set_default_device("cpu")',
    "cudnn": "torch.backends.cudnn.deterministic = True",
    "precision": 'torch.set_float32_matmul_precision("medium")',
    "flash attention": "torch.backends.cuda.enable_flash_sdp(False)",
    "function": "torch.neg = torch.relu",
    "functional": "torch.nn.functional.relu = torch.neg",
    "method": "torch.Tensor.relu = torch.Tensor.neg",
    "our own": "import cutesmith.judge.transfer.tensors as own; own.span_of = lambda *_: 0",
    "environment": 'import os; os.environ["CUTE_DSL_ARCH"] = "sm_100a"',
    "folder": 'import os; os.chdir("/")',
    "path": 'import sys; sys.path.append("/nowhere")',
    "thread": "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "recursion": "import sys; sys.setrecursionlimit(5000)",
    "module": 'import sys, types; m = types.ModuleType("helpers"); m.__file__ = "/elsewhere/helpers.py"; '
    'sys.modules["helpers"] = m',
}
HARMLESS = {
    "nothing": "",
    "imports": "import statistics, numpy.polynomial",
    "undone": "torch.set_default_dtype(torch.float64); torch.set_default_dtype(torch.float32)",
    "the file's own": "memory = {}; torch.manual_seed(3)",
}


@pytest.fixture
def judged(tmp_path):
    """A verification on the CPU, in a folder of its own: the verdict."""
    numbers = iter(range(100))

    def judged(expression=RELU, *, function="relu", top="", body="", timeout=120.0):
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        problem, kernel = folder / "problem.py", folder / "kernel.py"
        problem.write_text(PROBLEM.format(top=top, body=body, function=function))
        kernel.write_text(KERNEL.format(expression=expression))
        return verify_kernel(kernel, VerifyOptions(timeout=timeout), problem=problem, on="cpu")

    return judged


@pytest.mark.slow
def test_one_process_serves_several_problems(judged):
    with keeping_references() as kept:
        first = judged()
        process = kept.process
        verdicts = [judged(NEGATIVE, function="neg"), judged(NEGATIVE), judged()]
        replaced = [phase for verdict in verdicts for phase in verdict.phases if "not kept" in phase]
        assert kept.process is process and process.alive, replaced
        assert judged(RELU, function="neg").exit_code == ExitCode.WRONG_RESULT
    assert [verdict.exit_code for verdict in (first, *verdicts)] == [0, 0, ExitCode.WRONG_RESULT, 0]
    of_reference = [took for phase, took in verdicts[-1].phases.items() if phase.startswith("reference")]
    assert sum(of_reference) <= verdicts[-1].seconds + 0.1  # of this judging alone; each is rounded to milliseconds
    assert not process.alive and not process.scratch.exists()


def wanted(memory=8 * GIB, *, arch="sm_90a", files=4 * GIB):
    """A process that was not started, as a judging without a GPU wants it."""
    limits = Limits(memory_bytes=memory, file_bytes=files)
    return reference_process(why=None, limits=limits, environment={"CUTE_DSL_ARCH": arch})


def test_how_much_memory_is_free_is_no_reason_for_another_process():
    with keeping_references() as kept:
        for memory in (4 * GIB, 16 * GIB, 5 * GIB):
            with kept.serving(wanted(memory)) as process:
                process.call(Start("cpu"))
                assert process.limits.memory_bytes == memory
            assert kept.process is process
            allowed, _ = resource.prlimit(process._process.pid, resource.RLIMIT_AS)
            assert allowed == 24 * GIB, "what it may map holds for all judgings"


@pytest.mark.parametrize(
    ("other", "why"),
    [(wanted(arch="sm_100a"), "another CUTE_DSL_ARCH"), (wanted(files=32 * GIB), "another limit of files")],
)
def test_a_process_that_another_judging_cannot_use_is_replaced_and_said_why(other, why):
    with keeping_references() as kept:
        with kept.serving(wanted()) as process:
            process.call(Start("cpu"))
        with kept.serving(other):
            assert other.not_kept == why and not process.alive


@pytest.mark.slow
@pytest.mark.parametrize("statement", LEAVES_BEHIND.values(), ids=LEAVES_BEHIND)
def test_a_process_where_something_is_left_serves_no_other(judged, statement):
    with keeping_references() as kept:
        judged(body=statement)
        assert kept.process is None
        verdict = judged(NEGATIVE, function="neg")
        assert verdict.exit_code == ExitCode.PASSED
        assert [name for name in verdict.phases if name.startswith("reference start (not kept: ")]


@pytest.mark.slow
@pytest.mark.parametrize("top", HARMLESS.values(), ids=HARMLESS)
def test_what_is_gone_with_the_problem_is_no_reason_to_part(judged, top):
    with keeping_references() as kept:
        assert judged(top=top).exit_code == ExitCode.PASSED
        assert kept.process is not None


def test_gradients_that_a_file_turns_off_for_good_are_noticed(judged):
    with keeping_references() as kept:
        judged(top="torch.set_grad_enabled(False)")
        assert kept.process is None


def test_a_reference_that_fails_is_not_kept(judged):
    with keeping_references() as kept:
        assert judged(body="raise ValueError('no')").exit_code == ExitCode.USAGE
        assert kept.process is None
        assert judged().exit_code == ExitCode.PASSED


def test_a_candidate_that_dies_or_hangs_takes_no_reference_along(judged):
    with keeping_references() as kept:
        judged()
        process = kept.process
        assert judged('__import__("os")._exit(3)').exit_code == ExitCode.CRASHED
        assert judged('__import__("time").sleep(60)', timeout=2.0).exit_code == ExitCode.TIMED_OUT
        assert kept.process is process
        assert judged().exit_code == ExitCode.PASSED


@pytest.mark.slow
def test_a_process_that_has_died_meanwhile_is_replaced(judged):
    with keeping_references() as kept:
        judged()
        os.kill(kept.process._process.pid, signal.SIGKILL)
        kept.process._process.wait(timeout=10)
        verdict = judged()
        assert verdict.exit_code == ExitCode.PASSED and "reference start (not kept: it died)" in verdict.phases
        assert kept.process.alive


def test_a_problem_in_the_kernels_own_file_is_judged_apart(tmp_path):
    own = tmp_path / "own.py"
    own.write_text(PROBLEM.format(top="", body="", function="relu") + KERNEL.format(expression=RELU))
    with keeping_references() as kept:
        assert verify_kernel(own, on="cpu").exit_code == ExitCode.PASSED
        assert kept.process is None


def test_a_slot_without_work_gives_back_what_it_keeps(judged):
    read, write = os.pipe()
    file = File(name="kernel.py", data=b"\x00 any bytes \xff")
    job = CheckJob(id="a", seconds=1.0, task=file, kernel=file, settings=JudgeSettings())
    with keeping_references() as kept:
        judged()
        process = kept.process
        write_frame(write, job.model_dump(mode="json"))
        assert next_job(read, kept, patience=5.0) == job
        assert kept.process is process and process.alive
        threading.Timer(1.0, write_frame, (write, job.model_dump(mode="json"))).start()
        assert next_job(read, kept, patience=0.1) == job
        assert kept.process is None and not process.alive
        assert judged().exit_code == ExitCode.PASSED and kept.process is not None
        os.close(write)
        assert next_job(read, kept, patience=0.1) is None
    os.close(read)


HOST = """
import sys, time
from cutesmith.judge.kept_references import keeping_references
from cutesmith.judge.verification import verify_kernel

with keeping_references() as kept:
    verify_kernel(sys.argv[1], problem=sys.argv[2], on="cpu")
    print(kept.process._process.pid, kept.process.scratch, flush=True)
    time.sleep(60)
"""


def test_a_killed_host_leaves_no_process(tmp_path):
    problem, kernel = tmp_path / "problem.py", tmp_path / "kernel.py"
    problem.write_text(PROBLEM.format(top="", body="", function="relu"))
    kernel.write_text(KERNEL.format(expression=RELU))
    command = [sys.executable, "-c", HOST, str(kernel), str(problem)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as host:
        pid = int(host.stdout.readline().split()[0])
        assert _running(pid)
        host.kill()
    deadline = time.monotonic() + 10
    while _running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _running(pid)


def _running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
