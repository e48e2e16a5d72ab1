"""Kernels of others are told from the candidate's own by their names in the profiler's trace, and counted by time."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent

from cutesmith.judge import device_time
from cutesmith.judge.device_time import judged
from cutesmith.judge.one_process import on_device
from cutesmith.verdicts import CaseReport

CASE = CaseReport(name="device time", inputs="get_inputs()")
OWN = "kernel_cutlass_relu_kernel_tensorptrf32gmemo1_tensorptrf32gmemo1_0"
CLAMP = "void at::native::vectorized_elementwise_kernel<4, at::native::clamp_scalar_kernel_impl>"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >"
ADVERSARIAL = Path(__file__).parents[2] / "evals" / "adversarial"


def event(name, start, end, device_type=DeviceType.CUDA):
    return FunctionEvent(id=1, name=name, thread=0, start_us=start, end_us=end, device_type=device_type)


def test_only_what_ran_on_the_device_counts():
    trace = [event("aten::relu", 0, 90, DeviceType.CPU), event(OWN, 5, 25), event("Memset (Device)", 30, 31)]
    assert on_device(trace) == [(OWN, 20), ("Memset (Device)", 1)]


def test_a_decoy_is_rejected_with_names_and_shares():
    case = judged(CASE, [(OWN, 10.0), (CLAMP, 30.0)], [OWN])
    assert not case.passed and case.rule == "W2"
    assert case.explanation.startswith(
        "rejected: 75% of the device time goes to kernels that are not the file's own: void at"
    )


def test_fills_are_torch_s_business():
    assert judged(CASE, [(OWN, 10.0), (FILL, 90.0), ("Memset (Device)", 50.0)], [OWN]) == CASE


def test_a_small_share_is_said_and_passes():
    case = judged(CASE, [(OWN, 97.0), ("Memcpy DtoD (Device -> Device)", 3.0)], [OWN])
    assert case.passed and case.explanation.startswith("3% of the device time")


def test_where_no_kernel_is_known_nothing_is_judged():
    assert judged(CASE, [(CLAMP, 30.0)], [OWN]).explanation.startswith("not run: ")
    assert judged(CASE, [], [OWN]).passed


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "passes"), [("honest_plain", True), ("w2_honest_two_kernels", True), ("w2_partial_decoy", False)]
)
def test_on_a_gpu_the_profiler_tells_a_decoy_from_kernels_of_the_file(name, passes):
    from cutesmith.devices import current_device

    path = ADVERSARIAL / f"{name}.py"
    case = device_time.check(path, path, current_device().fitting_arch(), timeout=120)
    assert case.passed == passes and not case.explanation.startswith("not run"), case.explanation
