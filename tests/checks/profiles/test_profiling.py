"""Profiles by ncu: its table read, its numbers weighed, and every way in which a run of it ends."""

from __future__ import annotations

import dataclasses
import os
import shlex
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cutesmith.checks.isolation.watched_program import run_watched
from cutesmith.checks.isolation.worker import Limits
from cutesmith.checks.profiles import ncu_advice, static_advice
from cutesmith.checks.profiles.ncu_advice import advise
from cutesmith.checks.profiles.ncu_metrics import SECTIONS, profiled_kernel
from cutesmith.checks.profiles.ncu_reader import read_raw_page, remarks, scale_of
from cutesmith.checks.profiles.ncu_run import MOST_LAUNCHES, NcuRequest, collect, find_ncu
from cutesmith.checks.profiles.profiling import ProfileOptions, Profiling, profile_kernel
from cutesmith.checks.profiles.static_advice import REFERENCES
from cutesmith.emulator import profile_advice
from cutesmith.errors import CandidateError, UsageError
from cutesmith.references.sections import read_pages
from cutesmith.verdicts import EmulateVerdict, ExitCode
from tests.checks.profiles.ncu_samples import (
    COPY,
    DONE,
    ELAPSED,
    KERNEL,
    REPORT,
    SPIN,
    STALL,
    SURROUNDED,
    details_page,
    fake_ncu,
    raw_page,
)

ROOT = Path(__file__).resolve().parents[3]
PAGE = raw_page(("spin_kernel", SPIN), (KERNEL, COPY))

# ------------------------------------------------------------------------------------------------------------ the table


def test_a_page_that_ncu_wrote_on_an_h200_is_read():
    """Recorded: relu_minimal.py, float32 16384 x 1024, after the trusted kernel; the columns that are read."""
    text = (Path(__file__).parent / "ncu_raw_page_h200.csv").read_text(encoding="utf-8")
    trusted, relu = read_raw_page(text).launches
    assert "spin_kernel" in trusted.kernel and relu.kernel == "relu_kernel" and relu.capability == "9.0"
    kernel = profiled_kernel(relu)
    assert (kernel.grid, kernel.block, kernel.registers) == ((65536, 1, 1), (256, 1, 1), 16)
    assert kernel.duration_us == pytest.approx(48.608) and kernel.dram_read_bytes == 67118336  # 64 MiB and a little
    assert kernel.load_sectors_per_request == 4.0 and kernel.waves == 62.06
    assert kernel.stalls["long_scoreboard"] == pytest.approx(0.8234)
    missing = [field.name for field in dataclasses.fields(kernel) if getattr(kernel, field.name) is None]
    assert missing == []


@pytest.mark.parametrize("text", [PAGE, SURROUNDED.format(table=PAGE)], ids=["bare", "with the profiler's lines"])
def test_a_raw_page_is_read_in_base_units(text):
    page = read_raw_page(text)
    spin, copy = page.launches
    assert (spin.kernel, copy.kernel, page.cut) == ("spin_kernel", "copy_kernel", False)
    assert (copy.grid, copy.block, copy.capability) == ((32768, 1, 1), (128, 1, 1), "9.0")
    assert copy.metrics["gpu__time_duration.sum"] == pytest.approx(252.16e-6)
    assert copy.metrics["dram__bytes_read.sum"] == 536870912
    assert "launch__func_cache_config" not in copy.metrics  # a word
    assert "smsp__inst_executed.avg.peak_sustained" not in copy.metrics  # (!) nan
    assert set(spin.metrics) == set(SPIN)


def test_a_details_page_tells_the_same():
    (launch,) = read_raw_page(details_page(KERNEL, COPY)).launches
    assert launch.metrics == read_raw_page(PAGE).launches[1].metrics
    assert launch.grid == (32768, 1, 1)


@pytest.mark.parametrize("lost", [1, 40, 200])
def test_a_page_that_was_cut_keeps_the_whole_launches(lost):
    page = read_raw_page(raw_page((KERNEL, COPY), (KERNEL, COPY)).rstrip()[:-lost])
    assert page.cut and [launch.number for launch in page.launches] == [0]


def test_wherever_a_page_is_cut_its_launches_are_the_first_of_the_whole():
    text = SURROUNDED.format(table=raw_page((KERNEL, COPY), (KERNEL, COPY)))
    whole = read_raw_page(text).launches
    for end in range(0, len(text), 23):
        part = read_raw_page(text[:end]).launches
        assert part == whole[: len(part)]


@pytest.mark.parametrize("text", ["", "==ERROR== nothing", '"quoted" text of a program\n"more"', PAGE.splitlines()[0]])
def test_a_text_without_launches_has_none(text):
    assert read_raw_page(text).launches == ()


@pytest.mark.parametrize(
    ("unit", "factor"),
    [
        *(("nsecond", 1e-9), ("ns", 1e-9), ("us", 1e-6), ("msecond", 1e-3), ("second", 1.0), ("byte", 1.0)),
        *(("Kbyte/block", 1e3), ("Mbyte", 1e6), ("Gbyte/second", 1e9), ("Gbyte/s", 1e9), ("byte/nsecond", 1e9)),
        *(("Ghz", 1e9), ("%", 1.0), ("", 1.0), ("inst", 1.0), ("sector/request", 1.0), ("register/thread", 1.0)),
    ],
)
def test_units(unit, factor):
    assert scale_of(unit) == pytest.approx(factor)


def test_what_the_profiler_said_is_found_by_kind():
    text = "==PROF== fine\n==ERROR== one\n==WARNING== two\nfake ==ERROR== three\n==ERROR==  four \n"
    assert remarks(text) == ["one", "four"] and remarks(text, "WARNING") == ["two"]


# ---------------------------------------------------------------------------------------------------------- the numbers


def kernel_of(**changes):
    """The copy with other numbers, by ncu's names."""
    metrics = {**COPY, **{name: ("", str(value)) for name, value in changes.items()}}
    return profiled_kernel(read_raw_page(raw_page((KERNEL, metrics))).launches[0])


def test_every_number_finds_its_field():
    kernel = profiled_kernel(read_raw_page(PAGE).launches[1])
    assert kernel.duration_us == pytest.approx(252.16)
    assert kernel.dram_bytes == 536870912 + 528482304
    assert (kernel.dram_percent, kernel.l2_percent, kernel.l1_percent, kernel.sm_percent) == (88.41, 47.2, 31.5, 24.75)
    assert (kernel.l1_hit_percent, kernel.l2_hit_percent, kernel.tensor_percent) == (0, 50.11, 0)
    assert (kernel.registers, kernel.static_smem_bytes, kernel.dynamic_smem_bytes) == (32, 0, 1024)
    assert (kernel.occupancy_percent, kernel.theoretical_occupancy_percent) == (87.3, 100)
    assert kernel.occupancy_limits["shared mem"] == 32 and kernel.occupancy_limiter == "registers and warps"
    assert (kernel.waves, kernel.multiprocessors, kernel.load_sectors_per_request) == (15.52, 132, 16)
    assert kernel.issue_percent == pytest.approx(22)
    assert list(kernel.stalls) == ["long_scoreboard", "lg_throttle", "wait", "not_selected", "short_scoreboard"]
    assert kernel.stalls["long_scoreboard"] == 0.8  # of 60 warp cycles an instruction, "selected" among them


def test_blackwell_has_sums_for_the_ratio_and_two_tensor_pipes():
    base = {name: value for name, value in COPY.items() if "average_t_sectors" not in name}
    for way, sectors in (("ld", "400"), ("st", "0")):
        base[f"l1tex__t_sectors_pipe_lsu_mem_global_op_{way}.sum"] = ("sector", sectors)
        base[f"l1tex__t_requests_pipe_lsu_mem_global_op_{way}.sum"] = ("request", str(int(sectors) // 4))
    base[f"sm__pipe_tc_cycles_active.{ELAPSED}"] = ("%", "71.5")
    kernel = profiled_kernel(read_raw_page(raw_page((KERNEL, base))).launches[0])
    assert (kernel.load_sectors_per_request, kernel.store_sectors_per_request) == (4, None)
    assert kernel.tensor_percent == 71.5


def test_dram_sectors_do_where_there_are_no_bytes():
    base = {name: value for name, value in COPY.items() if not name.startswith("dram__")}
    base |= {"dram__sectors_read.sum": ("sector", "100"), "dram__sectors_write.sum": ("sector", "50")}
    kernel = profiled_kernel(read_raw_page(raw_page((KERNEL, base))).launches[0])
    assert (kernel.dram_read_bytes, kernel.dram_write_bytes, kernel.dram_bytes) == (3200, 1600, 4800)


def test_a_rate_gives_the_bytes_where_nothing_else_does():
    base = {name: value for name, value in COPY.items() if not name.startswith("dram__")}
    base["dram__bytes.sum.per_second"] = ("Gbyte/s", "4,000")
    kernel = profiled_kernel(read_raw_page(raw_page((KERNEL, base))).launches[0])
    assert kernel.dram_bytes == pytest.approx(4e12 * 252.16e-6) and kernel.dram_read_bytes is None


def test_a_launch_without_numbers_is_told_without_numbers():
    kernel = profiled_kernel(read_raw_page(raw_page((KERNEL, {"launch__x": ("", "n/a")}))).launches[0])
    assert kernel.duration_us is None and kernel.dram_bytes is None and kernel.stalls == {}
    assert advise(kernel) == ()


# ----------------------------------------------------------------------------------------------------------- the advice

BYTES_PER_SECTOR = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio"
DRAM = f"gpu__dram_throughput.{ELAPSED}"


def test_a_good_copy_is_at_the_roof_and_nothing_else():
    (only,) = advise(kernel_of(), tensor_bytes=2 * 536870912)
    assert (only.kind, only.metric, only.value) == ("bound", "gpu__dram_throughput", 88.41)
    assert "bound by DRAM, busy 88 %" in only.message


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({BYTES_PER_SECTOR: 4}, "uncoalesced", "use 4 of the 32 bytes of each sector, 16 sectors a request"),
        ({f"l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{'st'}.ratio": 32,
          BYTES_PER_SECTOR.replace("_ld", "_st"): "n/a"}, "uncoalesced", "stores of 32 sectors a request"),
        ({"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": 3200,
          "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 3100}, "bank conflict", "97 % of the wavefronts"),
        ({"l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": 100,
          "derived__local_spilling_requests": 25}, "local memory", "registers were spilled"),
        ({"l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": 100}, "local memory", "known at run time"),
        ({"dram__bytes_read.sum": 3 * 536870912}, "extra traffic", "times the bytes of inputs and outputs"),
        ({"launch__waves_per_multiprocessor": 1.2}, "tail wave", "1.2 waves of blocks: the last leaves 40 %"),
        ({f"sm__pipe_tensor_cycles_active.{ELAPSED}": 20, DRAM: 30}, "idle tensor pipe", "works 20 % of the time"),
        ({DRAM: 30}, "stall", "80 % of their time waiting for global or local memory"),
        ({DRAM: 30, "sm__maximum_warps_per_active_cycle_pct": 25,
          "launch__occupancy_limit_registers": 4}, "occupancy", "25 % of an SM's warps fit, limited by registers"),
        ({"sm__warps_active.avg.pct_of_peak_sustained_active": 40}, "uneven", "40 % of the warps were there"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_metric(changes, kind, words):
    advice = advise(kernel_of(**changes), tensor_bytes=2 * 536870912)
    (found,) = (remark for remark in advice if remark.kind == kind)
    assert words in found.message
    assert found.metric and found.value is not None and found.weight > 0
    assert advice[0].kind == "bound"


def test_few_blocks_are_said_once_and_as_such():
    kernel = replace(kernel_of(**{DRAM: 5, f"lts__throughput.{ELAPSED}": 6}), grid=(33, 1, 1), waves=0.25)
    kinds = [remark.kind for remark in advise(kernel)]
    assert kinds[1] == "small grid" and "tail wave" not in kinds


def test_waits_do_not_matter_where_every_cycle_issues():
    busy = kernel_of(**{DRAM: 30, "smsp__issue_active.avg.per_cycle_active": 0.95})
    assert "stall" not in {remark.kind for remark in advise(busy)}


def test_waiting_for_a_barrier_is_named():
    advice = advise(kernel_of(**{DRAM: 30, STALL.format("long_scoreboard"): 0, STALL.format("barrier"): 40}))
    assert any("other warps at a barrier" in remark.message for remark in advice)
    assert advice[0].message.startswith("bound by latency")


def test_every_section_that_advice_names_exists():
    anchors = {f"{page.path.name}#{section.anchor}" for page in read_pages() for section in page.sections}
    named = {value for module in (ncu_advice, static_advice) for value in vars(module).values() if _is_section(value)}
    assert len(named) >= 15 and named <= anchors, named - anchors
    assert set(REFERENCES.values()) <= anchors


def _is_section(value: object) -> bool:
    return isinstance(value, str) and ".md#" in value


def test_every_kind_of_the_emulated_gpu_has_its_section():
    source = Path(profile_advice.__file__).read_text(encoding="utf-8")
    assert all(f'"{kind}"' in source for kind in REFERENCES)
    assert set(profile_advice._PIPES) <= set(REFERENCES)


# --------------------------------------------------------------------------------------------------------- a run of ncu


def request_for(folder: Path, ncu: str, **fields) -> NcuRequest:
    exchange = folder / "exchange"
    exchange.mkdir()
    kernel = folder / "kernel.py"
    usual = {"timeout": 20, "inputs": []}
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
        ("-m", "cutesmith.checks.profiles.ncu_worker"),
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
STARTED = """echo '{"stage": "starting"}' > status.jsonl"""
LOADED = """echo '{"confinement": {}, "stage": "the profiled call of kernel_fn"}' > status.jsonl"""


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
        ({"profiling": """echo '{"confinement": {}, "error": {"exit_code": 4, "message": "k.py:3: no", "ours": true}}' \
> status.jsonl"""}, 4, "k.py:3: no"),
        ({"profiling": """echo '{"confinement": {}, "error": {"exit_code": 7, "message": "I am the machine"}}' \
> status.jsonl"""}, 5, "I am the machine"),
        ({"profiling": "ln -s /dev/zero status.jsonl"}, 7, "could not start the profiled process"),
        ({"profiling": "mkfifo status.jsonl"}, 7, "could not start the profiled process"),
        ({"profiling": """printf 'x{\\n[1]\\n{"confinement": 3, "error": "no"}\\n' > status.jsonl"""}, 7, "not start"),
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
    assert _command_line((tmp_path / "pid").read_text().strip()) == ""


def _command_line(pid: str) -> str:
    """Empty for a process that is gone, or dead and waits to be fetched."""
    path = Path("/proc", pid, "cmdline")
    return path.read_text() if path.exists() else ""


def test_ncu_that_hangs_before_the_kernel_is_there_is_named_itself(tmp_path):
    error = failure(tmp_path, request={"timeout": 0.3}, profiling=f"{STARTED}; exec sleep 79")
    assert error.exit_code == ExitCode.TIMED_OUT
    assert error.message == "ncu did not finish within 0.3 s (in starting)"


def test_a_table_that_was_cut_says_so(tmp_path):
    table = raw_page(("spin_kernel", SPIN), (KERNEL, COPY), (KERNEL, COPY)).rstrip()[:-40]
    collected = collect(request_for(tmp_path, fake_ncu(tmp_path, table=table)))
    assert len(collected.launches) == 1 and collected.cut


def test_output_without_end_is_cut_at_its_head(tmp_path):
    limits = Limits(wall_seconds=20, log_bytes=1000)
    finished = run_watched(["/bin/sh", "-c", "yes | head -c 3000000; echo; echo end"], cwd=tmp_path, limits=limits)
    assert len(finished.output) <= 1000 and finished.output.endswith("end\n") and finished.code == 0


def test_too_many_processes_end_a_run(tmp_path):
    limits = Limits(wall_seconds=20, processes=8)
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


# ------------------------------------------------------------------------------------------------- the profiled process

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


def test_what_the_kernel_raises_under_ncu_has_its_line(tmp_path, write_file):
    write_file(RAISING)
    error = failure(tmp_path, request={"device": "cpu", "timeout": 60}, profiling=WRAPPING)
    assert error.exit_code == ExitCode.CRASHED
    assert error.message == "kernel.py:3: ValueError: broken here"


def test_an_input_that_is_a_link_leads_nowhere(tmp_path, write_file):
    """Whoever wrote the kernel may have drawn its inputs: a file of theirs is read as the kernel may read."""
    write_file(ADDITION)
    (tmp_path / "secret").write_bytes(bytes(16))
    link = tmp_path / "exchange" / "inputs" / "0"
    layout = {"dtype": "float32", "shape": [4], "stride": [1], "misaligned_bytes": 0, "file": str(link), "bytes": 16}
    request = request_for(tmp_path, fake_ncu(tmp_path, profiling=WRAPPING), device="cpu", timeout=60, inputs=[layout])
    link.parent.mkdir()
    link.symlink_to(tmp_path / "secret")
    with pytest.raises(CandidateError, match="Permission denied"):
        collect(request)


def test_the_problem_of_the_file_draws_inputs_confined(tmp_path, write_file):
    drawing = ADDITION.replace(
        "    return [torch.arange", f"    open({str(tmp_path / 'written')!r}, 'w')\n    return [torch.arange"
    )
    options = ProfileOptions(ncu=fake_ncu(tmp_path, profiling=WRAPPING, table=PAGE), timeout=60)
    verdict = profile_kernel(write_file(drawing), on="cpu", options=options)
    assert verdict.exit_code == ExitCode.CRASHED and "Permission denied" in verdict.summary
    assert not (tmp_path / "written").exists()


# ------------------------------------------------------------------------------------------- without ncu, without a GPU

BLANK = EmulateVerdict(exit_code=ExitCode.PASSED, summary="", path="kernel.py", arch="sm_90a")


def counted(emulated: EmulateVerdict, why: CandidateError | None = None):
    return Profiling(Path("kernel.py"), Path("kernel.py"), ProfileOptions(), None)._counted(emulated, why)


def test_an_instruction_that_the_emulated_gpu_lacks_points_to_compile():
    lacking = replace(
        BLANK, exit_code=ExitCode.UNAVAILABLE, summary="kernel.py: does not execute `wgmma`", hint="Take a GPU."
    )
    verdict = counted(lacking)
    assert verdict.exit_code == 7 and "wgmma" in verdict.summary
    assert "Take a GPU.\n" in verdict.hint and "`cutesmith compile kernel.py` tells registers, spills" in verdict.hint


def test_why_it_is_not_ncu_is_said_with_what_to_do_and_its_tail():
    why = CandidateError("ncu may not read", ExitCode.UNAVAILABLE, hint="ask the owner", log_tail="==ERROR== tail")
    verdict = counted(BLANK, why)
    assert verdict.note == "ncu may not read: counted on the emulated GPU, no times"
    assert verdict.hint == "ask the owner" and verdict.log_tail == "==ERROR== tail"
    assert (verdict.tool, verdict.status) == ("emulator", "profiled")


MAY_BE_MISSING = ("spill_requests", "cluster_size")  # of some versions of ncu


@pytest.mark.gpu
@pytest.mark.skipif(find_ncu() is None, reason="needs ncu")
def test_ncu_on_a_real_gpu(tmp_path):
    report = tmp_path / "kept.ncu-rep"
    path = ROOT / "examples_index" / "kernels" / "relu_minimal.py"
    verdict = profile_kernel(path, on="gpu", options=ProfileOptions(report=str(report)))
    assert verdict.passed, f"{verdict.summary}\n{verdict.hint}\n{verdict.log_tail}"
    (kernel,) = verdict.kernels
    fields = {name: value for name, value in vars(kernel).items() if name not in MAY_BE_MISSING}
    assert [name for name, value in fields.items() if value in (None, "", {})] == []
    percents = {name: value for name, value in fields.items() if name.endswith("_percent")}
    assert len(percents) == 11 and all(0 <= value <= 110 for value in percents.values()), percents
    assert kernel.duration_us > 0 and kernel.registers > 0 and 0 < sum(kernel.stalls.values()) <= 1
    assert (
        kernel.dram_read_bytes > 0.9 * verdict.tensor_bytes / 2
    )  # half of them are the input, the caches were flushed
    assert kernel.load_bytes_per_sector == pytest.approx(32, abs=1)
    assert kernel.local_load_sectors == kernel.local_store_sectors == 0
    assert verdict.advice[0].kind == "bound" and verdict.confinement["no_new_privileges"]
    assert report.stat().st_size > 1000
