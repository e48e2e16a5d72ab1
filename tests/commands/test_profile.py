"""The profile command as a person and as a program meets it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cutesmith.commands._emulation_tables import WIDTH
from cutesmith.commands.profile import main, table
from cutesmith.devices import list_devices
from cutesmith.profiling.advice import advise
from cutesmith.profiling.ncu_metrics import profiled_kernel
from cutesmith.profiling.ncu_reader import read_raw_page
from cutesmith.profiling.profiling import NO_GPU, ProfileVerdict, profile_kernel
from cutesmith.verdicts import ExitCode
from tests.profiling.ncu_samples import COPY, KERNEL, raw_page

ROOT = Path(__file__).parents[2]
EMULATED = ROOT / "tests" / "emulator" / "kernels"
COPY_KERNEL = ROOT / "tests" / "kernels" / "smem_reverse.py"


@pytest.fixture(scope="module")
def counted():
    """On the emulated GPU, to which "auto" comes down without another: one real run for several tests."""
    return profile_kernel(EMULATED / "memory_patterns.py", on="emulator" if list_devices() else "auto")


def measured(**changes) -> ProfileVerdict:
    """A verdict as a run of ncu gives it, from a page that was written by hand."""
    metrics = {**COPY, **{name: ("", str(value)) for name, value in changes.items()}}
    kernel = profiled_kernel(read_raw_page(raw_page((KERNEL, metrics))).launches[0])
    return ProfileVerdict(
        exit_code=ExitCode.PASSED,
        summary="kernel.py: 1 launch under ncu, 252.2 us; DRAM 88 % of its peak",
        path="kernel.py",
        tool="ncu",
        device="NVIDIA H200",
        arch="sm_90a",
        inputs="bfloat16[32768, 8192]",
        kernels=(kernel,),
        advice=tuple(replace(remark, kernel=kernel.name) for remark in advise(kernel)),
        report="kernel.ncu-rep",
        confinement={"landlock": True, "seccomp": False},
    )


def test_counts_for_a_program(counted):
    fields = json.loads(counted.to_json())
    assert (fields["stage"], fields["status"], fields["exit_code"]) == ("profile", "profiled", 0)
    assert (fields["tool"], fields["kernels"], fields["device"]) == ("emulator", [], "the emulated GPU (sm_90a)")
    assert fields["note"] == ("" if list_devices() else f"{NO_GPU}: counted on the emulated GPU, no times")
    assert fields["emulated"]["launches"][0]["profile"]["floor_us"] > 0
    conflict = next(remark for remark in fields["advice"] if remark["kind"] == "bank conflict")
    assert conflict["reference"] == "patterns-memory.md#bank-conflicts" and conflict["kernel"].startswith("line ")
    weights = [remark["weight"] for remark in fields["advice"]]
    assert weights == sorted(weights, reverse=True) and "nothing was timed" in fields["summary"]


def test_counts_for_a_person(counted):
    text = "\n".join(table(counted))
    for words in (
        "line 23: global loads of 32 sectors a request where 4 would do",
        "read on in references/",
        "bank conflict     patterns-memory.md#bank-conflicts",
        "profiled: memory_patterns.py: 1 launch counted on the emulated GPU",
    ):
        assert words in text, words
    assert "emulated:" not in text  # one verdict, not two
    assert max(map(len, text.splitlines())) <= WIDTH


def test_measurements_for_a_person():
    text = "\n".join(table(measured()))
    for words in (
        "NVIDIA H200 (sm_90a): bfloat16[32768, 8192]",
        "copy_kernel: grid 32768×1×1 block 128×1×1",
        "time        252.16 us, 15.5 waves, an instruction issued in 22 % of the cycles",
        "DRAM        88.4 % of peak, 536.9 MB read, 528.5 MB written",
        "limited by registers and warps",
        "32 registers a thread, 0 B static, 1024 B dynamic shared memory",
        "warps wait  long_scoreboard 80 %, lg_throttle 13 %",
        "what to change in copy_kernel",
        "gpu__dram_throughput = 88.41",
        "references/profiling.md#which-floor-applies",
        "report: kernel.ncu-rep (ncu-ui kernel.ncu-rep",
        "could not confine the kernel by seccomp",
    ):
        assert words in text, words
    assert max(map(len, text.splitlines())) <= WIDTH


def test_what_ncu_gave_no_number_for_is_left_out():
    bare = profiled_kernel(read_raw_page(raw_page((KERNEL, {"launch__x": ("", "n/a")}))).launches[0])
    text = "\n".join(table(replace(measured(), kernels=(bare,), advice=())))
    assert "None" not in text and "nothing to say" in text


def test_a_failure_shows_the_last_lines_and_what_to_do():
    failed = ProfileVerdict(
        exit_code=ExitCode.CRASHED, summary="kernel.py: it crashed", path="kernel.py", log_tail="a\nb", hint="repair it"
    )
    assert list(table(failed)) == [
        "last lines of the log:",
        "  a",
        "  b",
        "crashed: kernel.py: it crashed (0.0 s)",
        "repair it",
    ]


def test_a_cheat_is_not_profiled(write_file, capsys):
    source = COPY_KERNEL.read_text().replace("def kernel_fn(x):\n", "def kernel_fn(x):\n    import ctypes\n")
    assert main([str(write_file(source)), "--json"]) == ExitCode.REJECTED
    fields = json.loads(capsys.readouterr().out)
    assert (fields["status"], fields["rule"]) == ("rejected", "H7") and "ctypes" in fields["summary"]


@pytest.mark.skipif(bool(list_devices()), reason="this machine has a GPU")
def test_without_a_gpu_there_is_no_ncu(capsys):
    assert main([str(COPY_KERNEL), "--on", "gpu", "--json"]) == ExitCode.UNAVAILABLE
    fields = json.loads(capsys.readouterr().out)
    assert fields["status"] == "unavailable" and "no NVIDIA GPU" in fields["summary"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.py"], "no such file"),
        ([str(ROOT / "evals/tasks/level1/softmax.py")], "it has no kernel_fn"),
        ([str(COPY_KERNEL), "--problem", "missing.py"], "no such file"),
        ([str(COPY_KERNEL), "--arch", "sm_42"], "sm_42"),
        ([str(COPY_KERNEL), "--on", "moon"], "moon"),
        ([str(COPY_KERNEL), "--ncu", "/nowhere/ncu"], "--ncu /nowhere/ncu: no such program"),
        ([str(COPY_KERNEL), "--report", "/nowhere/k.ncu-rep"], "--report /nowhere/k.ncu-rep: no file can be written"),
        ([str(COPY_KERNEL), "--timeout", "0"], "more than 0 seconds"),
        ([], "file"),
    ],
)
def test_usage_errors(capsys, arguments, words):
    assert main([*arguments, "--json"]) == ExitCode.USAGE
    assert words in json.loads(capsys.readouterr().out)["summary"]


def test_the_script_helps_from_another_folder(run_script, tmp_path):
    done = run_script("profile_kernel", "--help", cwd=tmp_path)
    assert done.returncode == 0
    for words in (
        "cutesmith profile",
        "With an NVIDIA GPU and ncu",
        "Without a GPU or without ncu",
        "--report",
        "exit codes:",
    ):
        assert words in done.stdout
