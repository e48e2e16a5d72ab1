"""Tensors that pose as CUDA ones in tuples and named tuples that are arguments of a compiled function."""

from typing import NamedTuple

import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

from cutesmith.emulator.device import emulated_device


class Sides(NamedTuple):
    source: cute.Tensor
    target: cute.Tensor


@cute.kernel
def copy_kernel(source: cute.Tensor, target: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    target[thread] = source[thread]


@cute.jit
def copy_tuple(sides: tuple):
    copy_kernel(sides[0], sides[1]).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def copy_named(sides: Sides):
    copy_kernel(sides.source, sides.target).launch(grid=(1, 1, 1), block=(32, 1, 1))


@pytest.mark.parametrize(
    ("host", "kind"), [(copy_tuple, lambda *pair: pair), (copy_named, Sides)], ids=["tuple", "named"]
)
def test_tensors_in_a_tuple_reach_the_kernel(host, kind):
    with emulated_device("sm_90a") as device:
        source = torch.arange(32, device="cuda", dtype=torch.float32)
        target = torch.zeros(32, device="cuda")
        fakes = [make_fake_compact_tensor(cute.Float32, (32,)) for _ in range(2)]
        compiled = cute.compile(host, kind(*fakes), options="--enable-tvm-ffi")
        compiled(kind(source, target))
        assert torch.equal(target.cpu(), torch.arange(32.0))
    assert device.findings == ()


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: torch.zeros(31, device="cuda"), ValueError, r"sides\[0\].*shape\[0\].*expected to be 32"),
        (lambda: torch.zeros(32, device="cuda", dtype=torch.half), ValueError, r"sides\[0\].*expected dtype=float32"),
        (lambda: 3, TypeError, r"sides\[0\].*expected Tensor"),
    ],
)
def test_what_host_code_says_of_an_argument_arrives_whole(wrong, error, message):
    with emulated_device("sm_90a"):
        fakes = [make_fake_compact_tensor(cute.Float32, (32,)) for _ in range(2)]
        compiled = cute.compile(copy_tuple, tuple(fakes), options="--enable-tvm-ffi")
        for _ in range(2):
            with pytest.raises(error, match=message):
                compiled((wrong(), torch.zeros(32, device="cuda")))
