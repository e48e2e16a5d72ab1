"""Profiles by ncu: its table read, its numbers weighed, and what is told where there is none."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path

import pytest

from cutesmith.emulator.profiling import advice as profile_advice
from cutesmith.errors import CandidateError
from cutesmith.profiling import advice as advice_module
from cutesmith.profiling.advice import REFERENCES, advise
from cutesmith.profiling.ncu_metrics import profiled_kernel
from cutesmith.profiling.ncu_reader import complaints, read_raw_page, scale_of
from cutesmith.profiling.ncu_run import find_ncu
from cutesmith.profiling.profiling import ProfileOptions, Profiling, profile_kernel
from cutesmith.references.sections import read_pages
from cutesmith.verdicts import EmulateVerdict, ExitCode
from tests.profiling.ncu_samples import COPY, ELAPSED, KERNEL, PAGE, SPIN, STALL, SURROUNDED, details_page, raw_page

ROOT = Path(__file__).resolve().parents[2]


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
    ("factor", "units"),
    [
        (1e-9, ("nsecond", "ns")),
        (1e-6, ("us",)),
        (1e-3, ("msecond",)),
        (1.0, ("second", "byte", "%", "", "inst", "sector/request", "register/thread")),
        (1e3, ("Kbyte/block",)),
        (1e6, ("Mbyte",)),
        (1e9, ("Gbyte/second", "Gbyte/s", "byte/nsecond", "Ghz")),
    ],
)
def test_units(factor, units):
    assert [scale_of(unit) for unit in units] == pytest.approx([factor] * len(units))


def test_what_the_profiler_complained_of_is_found():
    text = "==PROF== fine\n==ERROR== one\n==WARNING== two\nfake ==ERROR== three\n==ERROR==  four \n"
    assert complaints(text) == ["one", "four"]


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


@pytest.mark.parametrize(
    ("metrics", "moved"),
    [
        (
            {"dram__sectors_read.sum": ("sector", "100"), "dram__sectors_write.sum": ("sector", "50")},
            (3200, 1600, 4800),
        ),
        ({"dram__bytes.sum.per_second": ("Gbyte/s", "4,000")}, (None, None, pytest.approx(4e12 * 252.16e-6))),
    ],
)
def test_dram_sectors_or_a_rate_do_where_there_are_no_bytes(metrics, moved):
    base = {name: value for name, value in COPY.items() if not name.startswith("dram__")}
    kernel = profiled_kernel(read_raw_page(raw_page((KERNEL, base | metrics))).launches[0])
    assert (kernel.dram_read_bytes, kernel.dram_write_bytes, kernel.dram_bytes) == moved


def test_a_launch_without_numbers_is_told_without_numbers():
    kernel = profiled_kernel(read_raw_page(raw_page((KERNEL, {"launch__x": ("", "n/a")}))).launches[0])
    assert kernel.duration_us is None and kernel.dram_bytes is None and kernel.stalls == {}
    assert advise(kernel) == ()


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
    named = {value for value in vars(advice_module).values() if isinstance(value, str) and ".md#" in value}
    assert len(named) >= 15 and named <= anchors, named - anchors
    assert set(REFERENCES.values()) <= anchors


def test_every_kind_of_the_emulated_gpu_has_its_section():
    source = Path(profile_advice.__file__).read_text(encoding="utf-8")
    assert all(f'"{kind}"' in source for kind in REFERENCES)
    assert set(profile_advice._PIPES) <= set(REFERENCES)


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
