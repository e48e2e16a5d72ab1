"""What `compile` says of TMA, mbarriers, descriptors and registers by role: planted faults, and twins without one."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cutesmith.compiling.engines.report import engine_report, program_of
from cutesmith.compiling.engines.shared_accesses import Moved, followed, is_image
from cutesmith.emulator.device import emulated_device
from cutesmith.emulator.engines.swizzles import Swizzle
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.problems.loading import load_file
from cutesmith.recording.open_session import session
from cutesmith.verdicts import EngineFault

SPECIMEN = Path(__file__).with_name("engine_faults.py")
ROOT = SPECIMEN.parent.parent.parent
ARCH = re.compile(r'^ARCH = "(\w+)"$', re.MULTILINE)
FAULTS = [fault.value for fault in EngineFault if fault is not EngineFault.BAD_TENSOR_MAP]


def reports(path, call, arch="sm_90a"):
    """The reports on what `call(module, inputs)` launches, with lines of the file."""
    with session(arch, fake=True, line_info=True) as recorded:
        loaded = load_file(path)
        call(loaded.module, loaded.get_inputs())
    found = []
    for launch in recorded.launches:
        kernel, module = launch.compiled, launch.module
        found.append(engine_report(launch, kernel, program_of(launch, module.ptx), path.name))
    return found


def specimen(fault):
    (report,) = reports(SPECIMEN, lambda module, inputs: module.product(*inputs, fault))
    return report


def test_a_sound_kernel_is_decided_without_a_finding_and_its_descriptors_are_words():
    report = specimen("none")
    assert not report.findings and not report.undecided
    a, b = report.descriptors
    assert a.startswith("A of wgmma: 64 rows x 16, K-major, 128-byte swizzle, from byte 1024 of shared memory")
    assert b.startswith("B of wgmma: 64 rows x 16, K-major, 128-byte swizzle, from byte 9216 of shared memory")
    assert all("8 rows further: 1024 bytes (4 such)" in words for words in (a, b))


@pytest.mark.slow
def test_the_sound_specimen_is_right_when_it_is_executed():
    with emulated_device("sm_90a") as device:
        loaded = load_file(SPECIMEN)
        inputs = loaded.get_inputs()
        got, expected = loaded.kernel_fn(*inputs).cpu(), loaded.reference_fn(*inputs).cpu()
        device.check()
    assert not device.findings
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_at_a_line_of_the_file_and_has_a_remedy(fault):
    report = specimen(fault)
    assert {finding.fault.value for finding in report.findings} == {fault}
    lines = SPECIMEN.read_text().splitlines()
    for finding in report.findings:
        name, _, line = finding.place.partition(":")
        assert name == SPECIMEN.name and lines[int(line) - 1].strip() and finding.remedy


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("bulk_every_thread_announces", EngineFault.TOO_MANY_ARRIVALS),
        ("bulk_expects_too_few_bytes", EngineFault.WRONG_BYTES),
        ("bulk_misaligned", EngineFault.MISALIGNED),
        ("store_misaligned", EngineFault.MISALIGNED),
        ("tma_store_misaligned", EngineFault.MISALIGNED),
        ("tma_box_between_units", EngineFault.MISALIGNED),
        ("bulk_missing_arrival", EngineFault.TOO_FEW_ARRIVALS),
        pytest.param("bulk_expects_too_many_bytes", EngineFault.WRONG_BYTES, marks=pytest.mark.slow),
        pytest.param("bulk_second_copy_not_counted", EngineFault.WRONG_BYTES, marks=pytest.mark.slow),
        pytest.param("deadlock_message_barrier", EngineFault.TOO_FEW_ARRIVALS, marks=pytest.mark.slow),
        pytest.param("tcgen05_commit_missing", EngineFault.TOO_FEW_ARRIVALS, marks=pytest.mark.slow),
    ],
)
def test_faults_of_execution_that_show_without_it(name, fault):
    path = ROOT / "evals" / "planted_faults" / f"{name}.py"
    (wrong,) = reports(path, lambda module, inputs: module.kernel_fn(*inputs), arch_of(path))
    (sound,) = reports(path, lambda module, inputs: module.corrected_fn(*inputs), arch_of(path))
    assert [finding.fault for finding in wrong.findings] == [fault]
    assert not sound.findings


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wgmma_wrong_swizzle", "B of wgmma reads byte 5120 of shared memory with a 128-byte swizzle"),
        ("tma_wrong_swizzle", "threads read the box at byte 1024 of shared memory with no swizzle"),
        ("tcgen05_wrong_swizzle", "A of tcgen05.mma reads byte 1024 of shared memory with a 128-byte swizzle"),
    ],
)
def test_a_wrong_swizzle_names_who_writes_and_who_reads(name, words):
    path = ROOT / "evals" / "planted_faults" / f"{name}.py"
    (wrong,) = reports(path, lambda module, inputs: module.kernel_fn(*inputs), arch_of(path))
    (sound,) = reports(path, lambda module, inputs: module.corrected_fn(*inputs), arch_of(path))
    (finding,) = wrong.findings
    assert finding.fault is EngineFault.WRONG_SWIZZLE and finding.message.startswith(words)
    lines = path.read_text().splitlines()
    reader, writer = (int(re.search(rf"{path.name}:(\d+)$", text)[1]) for text in (finding.place, finding.message))
    marked = next(number for number, line in enumerate(lines, 1) if "# fault: " in line)
    assert reader != writer and marked in (reader, writer, reader + 1)  # a line of a loop may be its head's
    assert not sound.findings


ROWS = 64


def pairs(swizzle, pitch, width=128):
    """Chunks of a tile as threads move them: rows of `width` bytes in shared memory, rows of `pitch` bytes outside."""
    row, chunk = np.divmod(np.arange(ROWS * width // 16), width // 16)
    shared = swizzle.apply((4096 + row * width + chunk * 16).astype(np.int64))
    instruction = Instruction("st", ("shared", "v4", "b32"), ())
    return Moved(instruction, 16, shared, 1 << 40 | row * pitch + chunk * 16, np.zeros(len(row), np.int64))


@pytest.mark.parametrize(("swizzle", "width"), [(Swizzle.B128, 128), (Swizzle.B64, 64), (Swizzle.B32, 32), (Swizzle.NONE, 128)])  # noqa: E501  # fmt: skip
def test_addresses_tell_the_swizzle_that_they_follow(swizzle, width):
    found = followed([pairs(swizzle, 4096, width)])
    assert found[0] is swizzle
    assert (Swizzle.NONE in found) == (swizzle is Swizzle.NONE)


def test_addresses_of_columns_or_of_one_row_tell_nothing():
    tile = pairs(Swizzle.B128, 4096)
    one_row = replace(tile, shared=tile.shared[:8], there=tile.there[:8], group=tile.group[:8])
    columns = replace(tile, there=tile.there // 4096 + tile.there % 4096 * 64)
    assert not followed([one_row]) and not followed([columns]) and not followed([])
    assert not followed([tile, replace(tile, shared=None)])


def test_one_stretch_of_global_memory_may_have_been_swizzled_before():
    assert is_image([pairs(Swizzle.NONE, 128)]) and not is_image([pairs(Swizzle.NONE, 4096)])


def test_mbarriers_that_nothing_initialises_at_all_are_told(tmp_path):
    text = (ROOT / "evals" / "planted_faults" / "bulk_early_release.py").read_text()
    without = tmp_path / "nothing_initialised.py"
    without.write_text(re.sub(r"cute\.arch\.mbarrier_init\(.*\)", "pass", text))
    (report,) = reports(without, lambda module, inputs: module.corrected_fn(*inputs))
    assert report.findings and {finding.fault for finding in report.findings} == {EngineFault.NOT_INITIALISED}


@pytest.mark.parametrize("apart", [False, True])
def test_bytes_that_are_expected_in_two_parts_are_not_told(tmp_path, apart):
    text, once = SPECIMEN.read_text(), "cute.arch.mbarrier_arrive_and_expect_tx(full, expected)"
    parts = "cute.arch.mbarrier_expect_tx(full, expected // 2)\n" + " " * 16
    halves = tmp_path / SPECIMEN.name
    halves.write_text(text.replace(once, parts + once.replace("expected)", "expected // 2)")) if apart else text)
    (report,) = reports(halves, lambda module, inputs: module.product(*inputs, "none"))
    assert not report.findings and bool(report.undecided) == apart


def arch_of(path):
    match = ARCH.search(path.read_text())
    return match[1] if match else "sm_90a"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemm_sm90_bias_gelu", "gated_gemm_sm90", "flash_attention_sm90", "tma_copy_pipeline_sm90", "gemm_sm100_bias_gelu"])  # noqa: E501  # fmt: skip
def test_kernels_of_the_index_are_silent(name):
    path = ROOT / "examples_index" / "kernels" / f"{name}.py"
    (report,) = reports(
        path, lambda module, inputs: module.kernel_fn(*inputs), "sm_100a" if "100" in name else "sm_90a"
    )
    assert not report.findings
    assert not any("mbarrier" in what for what in report.undecided)


def test_a_malformed_tensor_map_is_a_finding_with_what_is_wrong_with_it():
    with session("sm_90a", fake=True) as recorded:
        loaded = load_file(SPECIMEN)
        loaded.module.product(*loaded.get_inputs(), "none")
    (launch,) = recorded.launches
    kernel, maps = launch.compiled, [len(data) == 128 for data in launch.parameters]
    first = launch.parameters[maps.index(True)]
    changed = first[:8] + bytes([first[8] | 0x70]) + first[9:]  # eight dimensions
    parameters = tuple(changed if data is first else data for data in launch.parameters)
    program = program_of(launch, launch.module.ptx)
    report = engine_report(replace(launch, parameters=parameters), kernel, program)
    (finding,) = report.findings
    assert finding.fault is EngineFault.BAD_TENSOR_MAP and "are not a tensor map" in finding.message
