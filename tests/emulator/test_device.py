"""Kernel files run unchanged on the emulated GPU, through each way to launch; what goes wrong surfaces as itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cutesmith.emulator.device import emulated_device
from cutesmith.emulator.errors import EmulatorBug, LaunchRefused
from cutesmith.emulator.faults import KernelFault
from cutesmith.emulator.machine.settings import Settings
from cutesmith.errors import CutesmithError, UnavailableError
from cutesmith.problems.loading import load_file
from cutesmith.recording.facade import active_facade
from cutesmith.recording.host_calls import current
from cutesmith.verdicts import ExitCode
from tests.kernel_files import kernel_file

OURS = Path(__file__).parent / "kernels"


def outputs_of(path: Path, arch: str = "sm_90a", *arguments: object, **options):
    """(device, outputs, expected) of a kernel file on its own inputs."""
    with emulated_device(arch, **options) as device:
        file = load_file(path)
        inputs = file.get_inputs()
        returned = file.kernel_fn(*inputs, *arguments)
        expected = file.reference_fn(*inputs)
    return device, returned, expected


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sanitize", [True, False])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ["relu_tvm_ffi", "relu_from_dlpack", "relu_direct_jit", "smem_reverse"])
def test_each_way_to_launch_gives_what_torch_gives(name, arch, sanitize):
    device, returned, expected = outputs_of(kernel_file(name), arch, sanitize=sanitize)
    assert torch.equal(returned, expected)
    (report,) = device.launches
    assert report.completed
    assert report.instructions > report.launch.block[0] * report.launch.grid[0]
    assert device.findings == ()


def test_clusters_and_several_launches():
    _, returned, expected = outputs_of(kernel_file("copy_cluster"))
    assert torch.equal(returned, expected)
    device, returned, expected = outputs_of(kernel_file("copy_three_launches"))
    assert torch.equal(returned, expected)
    assert [report.launch.grid[0] for report in device.launches] == [8, 8, 4]


def test_kernels_of_one_name_are_told_apart():
    device, returned, expected = outputs_of(OURS / "same_name.py")
    first, second = device.launches
    assert first.launch.kernel == second.launch.kernel
    assert torch.equal(returned[0], expected[0])
    assert torch.equal(returned[1], expected[1])


def test_a_failure_of_the_emulator_does_not_blame_the_kernel():
    class Broken:
        @property
        def instrumentation(self):
            raise KeyError("opcodes")

    with pytest.raises(EmulatorBug, match="the emulated GPU itself failed: KeyError: 'opcodes'") as caught:
        outputs_of(kernel_file("relu_tvm_ffi"), observer=Broken())
    assert caught.value.exit_code == ExitCode.INTERNAL


def test_printf_is_formatted_as_c_does(capfd):
    device, returned, expected = outputs_of(OURS / "asserts_and_prints.py")
    assert torch.equal(returned, expected)
    lines = ["thread 0 of 32: 0.00 A|    7|-3  |%", "thread 1 of 32: 1.00 A|    7|-3  |%"]
    assert device.launches[0].printed.split("\n\n")[:2] == lines
    assert lines[1] in capfd.readouterr().err


def test_a_failed_assertion_names_its_text_and_line():
    with pytest.raises(KernelFault, match="index is too large") as caught:
        outputs_of(OURS / "asserts_and_prints.py", "sm_90a", 20)
    finding = caught.value.findings[0]
    assert finding.kind == "assertion"
    assert finding.thread == (20, 0, 0)
    assert finding.location.file.endswith("asserts_and_prints.py")
    assert finding.location.line == 14


@pytest.mark.parametrize("name", ["copy_2048_threads", "copy_over_smem", "copy_odd_cluster"])
def test_what_the_hardware_refuses_is_refused(name):
    with pytest.raises(LaunchRefused, match="sm_90 refuses to launch copy_kernel"):
        outputs_of(kernel_file(name))


def test_an_error_that_the_code_swallows_surfaces_all_the_same():
    with pytest.raises(LaunchRefused), emulated_device("sm_90a") as device:
        file = load_file(kernel_file("copy_2048_threads"))
        try:
            file.kernel_fn(*file.get_inputs())
        except Exception:
            with pytest.raises(LaunchRefused):
                device.check()
        good = load_file(kernel_file("relu_from_dlpack"))
        with pytest.raises(LaunchRefused):  # as on a GPU, whose context keeps its first error
            good.kernel_fn(*good.get_inputs())


def test_a_refused_launch_can_be_forgotten():
    good = kernel_file("relu_from_dlpack")
    with emulated_device("sm_90a") as device:
        refused, file = load_file(kernel_file("copy_2048_threads")), load_file(good)
        with pytest.raises(LaunchRefused):
            refused.kernel_fn(*refused.get_inputs())
            device.check()
        device.forget_refusal()
        inputs = file.get_inputs()
        assert torch.equal(file.kernel_fn(*inputs).cpu(), file.reference_fn(*inputs).cpu())


def test_the_next_device_starts_fresh():
    with pytest.raises(LaunchRefused):
        outputs_of(kernel_file("copy_2048_threads"))
    _, returned, expected = outputs_of(kernel_file("relu_from_dlpack"))
    assert torch.equal(returned, expected)


def test_code_that_launches_nothing_has_no_launches():
    device, _, _ = outputs_of(kernel_file("copy_no_launch"))
    assert device.launches == []


def test_programs_are_compiled_once():
    with emulated_device("sm_90a") as device:
        file = load_file(kernel_file("relu_tvm_ffi"))
        for _ in range(3):
            (x,) = file.get_inputs()
            assert torch.equal(file.kernel_fn(x), torch.relu(x))
    assert len({id(report.program) for report in device.launches}) == 1


def test_a_cuda_call_that_is_missing_is_named():
    with pytest.raises(UnavailableError, match="no `cudaGraphLaunch`"), emulated_device("sm_90a"):
        current.recorder.failed("_cudaGraphLaunch", None)


def test_device_memory_is_set_and_copied_for_real():
    with emulated_device("sm_90a") as device:
        x = torch.arange(64, dtype=torch.uint8, device="cuda")
        address = device.allocate(64)
        device.copy(address + 8, x.data_ptr() + 1, 16)
        device.fill(address + 8, 200, 2)
        device.copy(x.data_ptr(), address + 8, 16)
        device.free(address)
        with pytest.raises(CutesmithError, match="nothing was allocated"):
            device.free(address)
        with pytest.raises(CutesmithError, match="cudaMemset of 65 bytes .* leaves the memory"):
            device.fill(x.data_ptr(), 0, 65)
    assert x[:17].tolist() == [200, 200, *range(3, 17), 16]


def test_memory_without_an_owner_is_given_up():
    with emulated_device("sm_90a") as device:
        file = load_file(kernel_file("relu_tvm_ffi"))
        (x,) = file.get_inputs()
        for _ in range(5):
            file.kernel_fn(x)
        assert len(active_facade().claims()) <= 4  # the input, the output, the one before, what compiling kept
        assert len(device.launches) == 5


def test_a_step_limit_applies_to_a_launch():
    with pytest.raises(CutesmithError, match="after 10 steps"):
        outputs_of(kernel_file("smem_reverse"), settings=Settings(step_limit=10))


@pytest.mark.parametrize("orders", [1, 3])
def test_a_result_that_depends_on_the_order_of_completion(orders):
    path = Path(__file__).parent / "kernels" / "first_copy.py"
    with emulated_device("sm_90a", settings=Settings(orders=orders)) as device:
        file = load_file(path)
        result = file.kernel_fn(*file.get_inputs()).cpu()
    assert result.tolist() == [0, 0, 0, 0]  # the present state is that of the first order
    if orders == 1:
        assert not device.findings
    else:
        (found,) = device.findings
        assert found.kind == "depends_on_order"
        assert "in order 1 (the first warps of a block first) instead of 0" in found.message
        assert "the launch leaves other values in tensor" in found.message
