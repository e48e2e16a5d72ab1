"""What `compile` says of TMA, mbarriers, descriptors and registers by role: planted faults, and twins without one."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cutesmith.compiling.engines.report import engine_report, program_of
from cutesmith.emulator.device import emulated_device
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
        kernel, module = recorded.kernel(launch.kernel), recorded.module_of(launch.kernel)
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
    kernel, maps = recorded.kernel(launch.kernel), [len(data) == 128 for data in launch.parameters]
    first = launch.parameters[maps.index(True)]
    changed = first[:8] + bytes([first[8] | 0x70]) + first[9:]  # eight dimensions
    parameters = tuple(changed if data is first else data for data in launch.parameters)
    program = program_of(launch, recorded.module_of(launch.kernel).ptx)
    report = engine_report(replace(launch, parameters=parameters), kernel, program)
    (finding,) = report.findings
    assert finding.fault is EngineFault.BAD_TENSOR_MAP and "are not a tensor map" in finding.message
