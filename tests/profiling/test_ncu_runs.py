"""A run of ncu, by programs in its place: what is asked of it, how it fails, and the process that it watches."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cutesmith.errors import CandidateError, UsageError
from cutesmith.judge.transfer.requests import TensorFile
from cutesmith.profiling.ncu_metrics import SECTIONS
from cutesmith.profiling.ncu_run import MOST_LAUNCHES, NcuRequest, collect, find_ncu
from cutesmith.profiling.profiling import ProfileOptions, profile_kernel
from cutesmith.profiling.requests import Progress
from cutesmith.sandbox.child import describe
from cutesmith.sandbox.watched_program import run_watched
from cutesmith.sandbox.worker import Limits
from cutesmith.verdicts import ExitCode
from tests.processes import running
from tests.profiling.ncu_samples import COPY, DONE, KERNEL, PAGE, REPORT, SPIN, fake_ncu, raw_page, telling

ROOT = Path(__file__).resolve().parents[2]


def request_for(folder: Path, ncu: str, **fields) -> NcuRequest:
    exchange = folder / "exchange"
    exchange.mkdir()
    kernel = folder / "kernel.py"
    usual = {"timeout": 20, "inputs": ()}
    return NcuRequest(ncu=ncu, path=kernel, folder=exchange, arch="sm_90a", **{**usual, **fields})


def failure(folder: Path, *, request=None, **program) -> CandidateError:
    with pytest.raises(CandidateError) as raised:
        collect(request_for(folder, fake_ncu(folder, **program), **(request or {})))
    return raised.value


def test_ncu_is_asked_for_the_candidates_launches_and_its_report_is_read_apart(tmp_path):
    request = request_for(tmp_path, fake_ncu(tmp_path, table=PAGE))
    collected = collect(request)
    assert [launch.kernel for launch in collected.launches] == ["copy_kernel"]  # the trusted one is left out
    assert (collected.output_bytes, collected.confinement) == (536870912, {"landlock": True})
    asked = (tmp_path / "arguments").read_text().splitlines()
    for pair in (
        ("--profile-from-start", "off"),
        ("--target-processes", "application-only"),
        ("--replay-mode", "kernel"),
        ("--cache-control", "all"),
        ("--clock-control", "none"),
        ("--apply-rules", "no"),
        ("--launch-count", str(MOST_LAUNCHES + 1)),
        ("--export", str(request.report)),
        ("-m", "cutesmith.profiling.ncu_worker"),
        ("--import", str(request.report)),
        ("--page", "raw"),
        ("--print-units", "base"),
    ):
        assert pair in set(zip(asked, asked[1:])), pair
    assert [asked[i + 1] for i, word in enumerate(asked) if word == "--section"] == list(SECTIONS)
    assert not request.report.is_relative_to(request.scratch)  # where a candidate may not write
    ran, imported = (tuple(map(Path, line.split())) for line in (tmp_path / "places").read_text().splitlines())
    assert ran == (request.scratch, request.home) and imported == (request.folder, request.home)
    assert not request.home.is_relative_to(request.scratch)  # ncu runs the rules that it finds at home


def test_a_kernel_of_the_trusted_ones_name_is_not_left_out(tmp_path):
    name = "kernel_cutlass_spin_kernel_tensorptrf32gmemo1_0"
    table = raw_page(("void at::cuda::spin_kernel(long)", SPIN), (name, COPY))
    collected = collect(request_for(tmp_path, fake_ncu(tmp_path, table=table)))
    assert [(launch.kernel, launch.symbol) for launch in collected.launches] == [("spin_kernel", name)]


NO_PERMISSION = (
    "==PROF== Connected to process 1\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA "
    "GPU Performance Counters on the target device 0."
)
STARTED = telling(Progress("starting"))
LOADED = telling(Progress("the profiled call of kernel_fn", {}))


def failing(message: str, code: int, *, ours: bool) -> str:
    told = replace(describe(ValueError(message)), exit_code=code, ours=ours)
    return telling(Progress(confinement={}, error=told))


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [
        ({"profiling": f"{DONE}; echo {shlex.quote(NO_PERMISSION)} > \"$log\""}, 7, "ERR_NVGPUCTRPERM"),
        ({"profiling": f"{STARTED}; printf '==ERROR== An error.\\n==ERROR== No library\\n' > \"$log\"; exit 9"}, 7,
         "could not start the profiled process: An error. No library"),
        ({"profiling": "echo '==ERROR== unrecognised option --export'; exit 1"}, 7, "unrecognised option"),
        ({"profiling": f"{LOADED}; echo '==ERROR== LaunchFailed' > \"$log\"; exit 9"}, 5,
         "ended its process in the profiled call of kernel_fn: LaunchFailed"),
        ({"profiling": f"{LOADED}; kill -SEGV $$"}, 5, "ended its process in the profiled call"),
        ({"profiling": DONE}, 7, "wrote no report"),
        ({"imported": "echo '==ERROR== Failed to load report'; exit 1"}, 7, "own report: Failed to load report"),
        ({"table": ""}, 7, "profiled nothing, not even a trusted kernel"),
        ({"table": raw_page(("spin_kernel", SPIN))}, 2, "launched no kernel"),
        ({"profiling": f"{DONE}; {REPORT}; echo '==ERROR== Failed to profile it' >> \"$log\"",
          "table": raw_page(("spin_kernel", SPIN))}, 7, "no launch of the kernel: Failed to profile it"),
        ({"table": raw_page((KERNEL, COPY))[:-50]}, 7, "ends before its first launch is whole"),
        ({"profiling": failing("k.py:3: no", 4, ours=True)}, 4, "k.py:3: no"),
        ({"profiling": failing("I am the machine", 7, ours=False)}, 5, "ValueError: I am the machine"),
        ({"profiling": "ln -s /dev/zero status.jsonl"}, 7, "could not start the profiled process"),
        ({"profiling": "mkfifo status.jsonl"}, 7, "could not start the profiled process"),
        ({"profiling": """printf 'x{\\n[1]\\n{"confinement": 3, "error": "no"}\\n' > status.jsonl"""}, 7, "not start"),
        ({"profiling": f"{LOADED}; echo '{{\"stage\": 3}}' >> status.jsonl; printf '{{' >> status.jsonl"}, 5,
         "ended its process in the profiled call of kernel_fn"),
    ],
)  # fmt: skip
def test_how_a_run_fails(tmp_path, program, code, words):
    error = failure(tmp_path, **program)
    assert (error.exit_code, words in error.message) == (code, True), error.message


def test_the_tail_of_a_crash_keeps_what_both_said(tmp_path):
    error = failure(tmp_path, profiling=f"{LOADED}; echo the kernel spoke; echo '==ERROR== LaunchFailed' > \"$log\"")
    assert "the kernel spoke" in error.log_tail and "LaunchFailed" in error.log_tail


def test_a_candidate_cannot_speak_for_ncu(tmp_path):
    speaking = f"{LOADED}; echo {shlex.quote(NO_PERMISSION)}; echo {shlex.quote(PAGE)}; {DONE}; {REPORT}"
    error = failure(tmp_path, profiling=speaking, table=raw_page(("spin_kernel", SPIN)))
    assert error.exit_code == ExitCode.USAGE and "launched no kernel" in error.message


def test_a_run_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    hanging = f"{LOADED}; setsid sleep 77 & echo $! > {tmp_path}/pid; exec sleep 78"
    begin = time.monotonic()
    error = failure(tmp_path, request={"timeout": 0.5}, profiling=hanging)
    assert error.exit_code == ExitCode.TIMED_OUT and time.monotonic() - begin < 10
    assert "did not finish within 0.5 s (in the profiled call of kernel_fn)" in error.message
    assert "--timeout" in error.hint
    assert not running(int((tmp_path / "pid").read_text()))


def test_ncu_that_hangs_before_the_kernel_is_there_is_named_itself(tmp_path):
    error = failure(tmp_path, request={"timeout": 0.3}, profiling=f"{STARTED}; exec sleep 79")
    assert error.exit_code == ExitCode.TIMED_OUT
    assert error.message == "ncu did not finish within 0.3 s (in starting)"


def test_a_table_that_was_cut_says_so(tmp_path):
    table = raw_page(("spin_kernel", SPIN), (KERNEL, COPY), (KERNEL, COPY)).rstrip()[:-40]
    collected = collect(request_for(tmp_path, fake_ncu(tmp_path, table=table)))
    assert len(collected.launches) == 1 and collected.cut


def test_output_without_end_is_cut_at_its_head(tmp_path):
    limits = Limits(call_seconds=20, log_bytes=1000)
    finished = run_watched(["/bin/sh", "-c", "yes | head -c 3000000; echo; echo end"], cwd=tmp_path, limits=limits)
    assert len(finished.output) <= 1000 and finished.output.endswith("end\n") and finished.code == 0


def test_too_many_processes_end_a_run(tmp_path):
    limits = Limits(call_seconds=20, processes=8)
    many = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 20 & done; wait"
    finished = run_watched(["/bin/sh", "-c", many], cwd=tmp_path, limits=limits)
    assert "more than 8 processes" in finished.stopped and not finished.timed_out


def test_the_environment_of_ncu_is_clean(tmp_path):
    finished = run_watched(["/usr/bin/env"], cwd=tmp_path, limits=Limits(), environment={"LC_ALL": "C"})
    assert "LC_ALL=C\n" in finished.output
    assert "PYTEST_CURRENT_TEST" in os.environ and "PYTEST" not in finished.output


def test_ncu_is_found_or_the_given_path_is_wrong(tmp_path):
    program = fake_ncu(tmp_path)
    assert find_ncu(program) == program
    with pytest.raises(UsageError, match="no such program"):
        find_ncu(str(tmp_path / "nothing"))
    (tmp_path / "text").write_text("")
    with pytest.raises(UsageError):
        find_ncu(str(tmp_path / "text"))


ADDITION = """
import torch


def kernel_fn(x, factor):
    print("called")
    return x + factor


def reference_fn(x, factor):
    return x + factor


def get_inputs():
    return [torch.arange(256.0), 2.0]
"""
RAISING = """
def kernel_fn():
    raise ValueError("broken here")


def reference_fn():
    return None


def get_inputs():
    return []
"""
WRAPPING = f'"$@"\n{REPORT}'  # as ncu does: it starts the program that follows its options


@pytest.mark.slow
def test_the_whole_way_with_a_program_in_place_of_ncu(tmp_path, write_file):
    program = fake_ncu(tmp_path, profiling=WRAPPING, table=PAGE)
    kept = tmp_path / "kept.ncu-rep"
    options = ProfileOptions(ncu=program, report=str(kept), timeout=60)
    verdict = profile_kernel(write_file(ADDITION), on="cpu", options=options)
    assert (verdict.exit_code, verdict.status, verdict.tool) == (0, "profiled", "ncu"), (
        verdict.summary + verdict.log_tail
    )
    assert verdict.inputs == "float32[256], 2.0" and verdict.tensor_bytes == 2 * 1024
    assert [kernel.name for kernel in verdict.kernels] == ["copy_kernel"]
    assert verdict.advice[0].kernel == "copy_kernel" and "DRAM 88 % of its peak" in verdict.summary
    assert verdict.log_tail.count("called") == 2  # once to warm up, once profiled
    assert set(verdict.confinement) == {"no_new_privileges", "landlock", "reads", "seccomp"}
    assert kept.read_text() == "report\n" and verdict.report == str(kept)


@pytest.mark.slow
def test_what_the_kernel_raises_under_ncu_has_its_line(tmp_path, write_file):
    write_file(RAISING)
    error = failure(tmp_path, request={"device": "cpu", "timeout": 60}, profiling=WRAPPING)
    assert error.exit_code == ExitCode.CRASHED
    assert error.message == "kernel.py:3: ValueError: broken here"


@pytest.mark.slow
def test_an_input_that_is_a_link_leads_nowhere(tmp_path, write_file):
    """The author of the kernel may have drawn its inputs: a file of theirs is read as the kernel may read."""
    write_file(ADDITION)
    (tmp_path / "secret").write_bytes(bytes(16))
    link = tmp_path / "exchange" / "inputs" / "0"
    given = TensorFile("float32", (4,), (1,), 0, file=str(link), bytes=16)
    request = request_for(tmp_path, fake_ncu(tmp_path, profiling=WRAPPING), device="cpu", timeout=60, inputs=(given,))
    link.parent.mkdir()
    link.symlink_to(tmp_path / "secret")
    with pytest.raises(CandidateError, match="symbolic links"):
        collect(request)


def test_the_problem_of_the_file_draws_inputs_confined(tmp_path, write_file):
    drawing = ADDITION.replace(
        "    return [torch.arange", f"    open({str(tmp_path / 'written')!r}, 'w')\n    return [torch.arange"
    )
    options = ProfileOptions(ncu=fake_ncu(tmp_path, profiling=WRAPPING, table=PAGE), timeout=60)
    verdict = profile_kernel(write_file(drawing), on="cpu", options=options)
    assert verdict.exit_code == ExitCode.CRASHED and "Permission denied" in verdict.summary
    assert not (tmp_path / "written").exists()
