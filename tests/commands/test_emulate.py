"""The emulate command as a person and as a program meets it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cutesmith.commands._emulation_tables import WIDTH, table
from cutesmith.commands.emulate import main
from cutesmith.profiling.emulation import concluded, emulate_kernel, emulator
from cutesmith.profiling.requests import Emulate, Prepare, Start
from cutesmith.sandbox.worker import Worker
from cutesmith.verdicts import EmulatedFault, EmulatedLaunch, EmulateVerdict, ExitCode, FaultKind
from cutesmith.verdicts.emulation import MbarrierRing
from tests.kernel_files import kernel_file

ROOT = Path(__file__).parents[2]
EMULATED = ROOT / "tests" / "emulator" / "kernels"
FAULTS = ROOT / "evals" / "planted_faults"


def emulated(capsys, *arguments):
    """(exit code, JSON) of a run."""
    code = main([*map(str, arguments), "--json"])
    fields = json.loads(capsys.readouterr().out)
    assert fields["exit_code"] == code
    return code, fields


@pytest.fixture(scope="module")
def profiled():
    return emulate_kernel(EMULATED / "memory_patterns.py", profile=True)


@pytest.fixture(scope="module")
def worker():
    """One process for several files: to start it costs ten times what a small kernel does."""
    with Worker(emulator, environment={"CUTE_DSL_ARCH": "sm_90a"}) as worker:
        worker.call(Start())
        yield worker


def emulation_of(worker, path):
    """The JSON of what `emulate_kernel` concludes from the worker's reply."""
    sources = {str(path): path.read_text()}  # once confined, it may not read them
    worker.call(Prepare(path=path, sources=sources, arch="sm_90a"))
    blank = EmulateVerdict(exit_code=ExitCode.PASSED, summary="", path=str(path), arch="sm_90a")
    return json.loads(concluded(blank, worker.call(Emulate()), worker.log_tail).to_json())


def test_profile_for_a_program(profiled):
    fields = json.loads(profiled.to_json())
    assert (fields["exit_code"], fields["status"], fields["stage"]) == (0, "emulated", "emulate")
    (launch,) = fields["launches"]
    assert (launch["kernel"], launch["grid"], launch["block"]) == ("patterns_kernel", [2, 1, 1], [64, 1, 1])
    assert launch["completed"]
    assert launch["instructions"] > 30_000
    kinds = {advice["kind"] for advice in launch["profile"]["advice"]}
    assert {"uncoalesced", "bank conflict", "contention", "idle lanes"} <= kinds
    assert launch["profile"]["floor_us"] > 0 and launch["profile"]["bytes"]["global atomic"] == 4 * 128
    strided = next(line for line in launch["profile"]["lines"] if line["line"] == 23)
    assert strided["accesses"][0] == {
        "space": "global",
        "kind": "read",
        "instruction": "ld",
        "bytes_per_lane": 4,
        "lane_stride_bytes": 128,
        "requests": 4,
        "bytes": 512,
        "lanes_at_one_address": 1,
        "sectors_per_request": 32.0,
        "ideal_sectors_per_request": 4.0,
    }
    assert fields["inputs"] == "float32[2048]"


def test_profile_for_a_person(profiled):
    text = "\n".join(table(profiled))
    for words in (
        "launch 0: patterns_kernel, grid 2×1×1 block 64×1×1",
        "line 23: global loads of 32 sectors a request where 4 would do",
        "value += x[tidx * 32]  # pattern: strided",
        "global read 4 B × 4 requests, 32 sectors each (ideal 4)",
        "shared write 4 B × 4 requests, 1 wavefront each",
        "bound by L1 and shared memory",
        "not modelled",
        "the result was not compared",
    ):
        assert words in text, words
    assert max(map(len, text.splitlines())) <= WIDTH


def test_predictions_name_the_card_its_rate_and_the_whole_inputs(capsys, write_file):
    source = (EMULATED / "memory_patterns.py").read_text()
    assert "def get_inputs():" in source
    start, _, rest = source.partition("def get_inputs():")
    path = write_file(f'{start}EMULATED_SIZES = {{"times": 1}}\n\n\ndef get_inputs(times=4):{rest}')
    path.write_text(path.read_text().replace("torch.ones(2048", "torch.ones(2048 * times"))
    code, fields = emulated(capsys, path, "--profile")
    assert (code, fields["inputs"], fields["full_inputs"]) == (0, "float32[2048]", "float32[8192]")
    assert [(one["product"], one["times"]) for one in fields["predictions"]] == [("H200", 4.0), ("H100", 4.0)]
    assert fields["predictions"][1]["memory_us"] == pytest.approx(1e6 * 4 * (2048 + 128) / 2.98e12, rel=0.5)
    assert main([str(path), "--profile", "--gpu", "h100"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "H100: bound by" in text and "at 2.98 TB/s (measured on an H100)" in text and "H200" not in text
    assert "the whole inputs have 4 × these bytes" in text
    assert "issuing takes" in text and "lane-instructions an element of the results (all multiprocessors)" in text
    assert fields["output_elements"] == 128


def test_script_traces_from_another_folder(run_script, tmp_path):
    arguments = [EMULATED / "asserts_and_prints.py", "--trace", "--lane", "1"]
    done = run_script("emulate_kernel", *arguments, cwd=tmp_path)
    assert done.returncode == 0
    assert "\n    thread 1 of 32: 1.00 A|    7|-3  |%\n" in done.stdout
    assert "trace of launch 0, block 0, warp 0, values of lane 1" in done.stdout
    assert "gy[tidx] = gx[tidx] + 1.0" in done.stdout
    assert re.search(r"add\.f32 .* = 2\n", done.stdout)
    assert re.search(r"\n  00000003  (?:.*\n)+ +call\.uni .*vprintf", done.stdout)  # the lanes that print
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_a_fault_is_told_with_its_line(capsys):
    code, fields = emulated(capsys, FAULTS / "bounds_vector_tail.py")
    (fault,) = fields["launches"][0]["faults"]
    assert (code, fields["status"]) == (ExitCode.CRASHED, "out of bounds")
    assert (fault["kind"], fault["where"], fault["thread"]) == ("out_of_bounds", "bounds_vector_tail.py:22", [63, 0, 0])
    assert fields["summary"].startswith("bounds_vector_tail.py: out of bounds at bounds_vector_tail.py:22")


def test_what_the_emulated_gpu_cannot_do(worker):
    fields = emulation_of(worker, EMULATED / "video_instruction.py")
    assert fields["exit_code"] == ExitCode.UNAVAILABLE
    assert "does not execute `vabsdiff.u32.s32.s32`" in fields["summary"]
    assert "GPU" in fields["hint"]


def test_a_kernel_that_does_not_compile(worker):
    fields = emulation_of(worker, kernel_file("early_return"))
    assert fields["exit_code"] == ExitCode.DOES_NOT_COMPILE
    assert fields["summary"].startswith("early_return.py:14: UNSUP_EARLY_EXIT: ")
    assert "\x1b" not in fields["summary"]


def test_no_launch_at_all(worker):
    fields = emulation_of(worker, kernel_file("copy_no_launch"))
    assert (fields["exit_code"], fields["launches"]) == (ExitCode.USAGE, [])
    assert "launched no kernel" in fields["summary"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.py"], "no such file"),
        ([str(ROOT / "evals/tasks/level1/softmax.py")], "it has no kernel_fn"),
        ([str(kernel_file("smem_reverse")), "--arch", "sm_42"], "sm_42"),
        ([str(kernel_file("smem_reverse")), "--profile", "--trace"], "two runs"),
        ([str(kernel_file("smem_reverse")), "--trace", "0/1"], "BLOCK:WARP"),
        ([str(kernel_file("smem_reverse")), "--lane", "32"], "--lane is 0 to 31"),
        ([str(kernel_file("smem_reverse")), "--timeout", "0"], "more than 0 seconds"),
        ([], "file"),
    ],
)
def test_usage_errors(capsys, arguments, words):
    assert main([*arguments, "--json"]) == ExitCode.USAGE
    assert words in json.loads(capsys.readouterr().out)["summary"]


def test_a_kernel_without_reference_is_told_the_contract(write_file, capsys):
    path = write_file("def kernel_fn(x):\n    return x\n")
    assert main([str(path)]) == ExitCode.USAGE
    assert "reference_fn" in capsys.readouterr().err


def test_help_says_when_to_use_it(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for words in ("cutesmith verify --on emulator", "Not modelled:", "--profile", "--trace", "exit codes:"):
        assert words in text


def test_table_of_faults():
    fault = EmulatedFault(
        kind=FaultKind.RACE, message="nothing orders the two", where="k.py:8", thread=(1, 0, 0), block=(0, 0, 0),
        other="k.py:5", count=3,
    )  # fmt: skip
    launch = EmulatedLaunch(
        kernel="k", grid=(7, 1, 1), block=(32, 1, 1), cluster=(1, 1, 1), instructions=1_234_567, waves=2, seconds=0.5,
        completed=False, printed="a\nb\n", faults=(fault,),
    )  # fmt: skip
    verdict = EmulateVerdict(
        exit_code=ExitCode.CRASHED, summary="k.py: race", path="k.py", arch="sm_90a", inputs="float32[2]",
        full_inputs="float32[4]", launches=(launch,),
    )  # fmt: skip
    text = "\n".join(table(verdict))
    assert "shrunk from float32[4] (--full runs them all)" in text
    assert "1.235 M lane-instructions in 2 waves, 0.50 s of CPU time; a fault ended it" in text
    assert "    a\n    b\n" in text
    whole = "race at k.py:8: nothing orders the two (thread (1, 0, 0), block (0, 0, 0)); the other access is at k.py:5"
    assert f"{whole}; 3 times" in " ".join(text.split())


@pytest.mark.parametrize(
    ("trips", "full", "told"),
    [
        (3, "float32[4]", "3 phases; it never wrapped: the main loop did not run full, as it would with --full"),
        (3, "", "3 phases; it never wrapped"),
        (9, "float32[4]", "9 phases"),
    ],
)
def test_a_ring_that_never_wrapped_is_told_with_what_would_run_it_full(trips, full, told):
    launch = EmulatedLaunch(
        kernel="k", grid=(7, 1, 1), block=(32, 1, 1), cluster=(1, 1, 1), instructions=1, waves=1, seconds=0.5,
        completed=True, rings=(MbarrierRing(first=0, stages=4, filled=True, trips=trips),),
    )  # fmt: skip
    verdict = EmulateVerdict(
        exit_code=ExitCode.PASSED, summary="", path="k.py", arch="sm_90a", full_inputs=full, launches=(launch,)
    )
    (line,) = (line for line in table(verdict) if "mbarriers" in line)
    assert line.endswith(told)
