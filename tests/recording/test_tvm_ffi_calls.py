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
