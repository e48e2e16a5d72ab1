"""Kernels of other projects, executed on the emulated GPU: QuACK's row reductions, and GEMMs."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest
import torch

from cutesmith.emulator.device import emulated_device

EVALS = Path(__file__).resolve().parent.parent.parent / "evals"


@pytest.fixture(scope="module")
def cases():
    sys.path.insert(0, str(EVALS / "studies" / "emulator"))
    with warnings.catch_warnings(record=True):  # theirs; the DSL resets filters, so "ignore" does not hold
        import kernel_cases

        given = (
            kernel_cases.quack_cases,
            kernel_cases.gemm_cases,
            kernel_cases.hopper_cases,
            kernel_cases.blackwell_cases,
        )
        found = [case for cases in given for case in cases()]
        yield {case.name: case for case in found}
    sys.path.remove(str(EVALS / "studies" / "emulator"))


def softmax(x):
    return torch.softmax(x.double(), dim=-1)


def rms_norm(x, weight):
    wide = x.double()
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * weight.double()


def cross_entropy(x, labels):
    return torch.nn.functional.cross_entropy(x.double(), labels, reduction="none")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("quack/softmax 37x256 bf16", softmax),
        ("quack/softmax 2x32768 bf16", softmax),  # two blocks in a cluster
        ("quack/rmsnorm 8x1000 fp16", rms_norm),
        ("quack/cross_entropy 37x256 fp32", cross_entropy),
        ("quack/gemm 256x256x128 bf16", lambda a, b: a.double() @ b.double()),
        ("quack/gemm 256x256x128 bf16 pingpong", lambda a, b: a.double() @ b.double()),
        ("operators/gemm sm_90a 256x256x128 bf16", lambda a, b: a.double() @ b.double()),
        ("operators/gemm sm_100a 256x256x128 bf16", lambda a, b: a.double() @ b.double()),
        ("operators/gemm 128x128x64 fp16", lambda a, b: a.double() @ b.double()),
        ("operators/gemm 64x64x32 bf16 B transposed", lambda a, b: a.double() @ b.double()),
    ],
)
def test_against_float64(cases, name, reference):
    case = cases[name]
    values, _ = case.draw()
    expected = reference(*values)
    with warnings.catch_warnings(record=True), emulated_device(case.arch) as device:
        outputs = case.function()(*[value.cuda() for value in values])
        actual = (outputs[0] if isinstance(outputs, tuple) else outputs).cpu()
    assert device.findings == ()
    assert len(device.launches) == 1
    step = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2**-20}[actual.dtype]
    torch.testing.assert_close(actual.double(), expected, rtol=2 * step, atol=2 * step)
