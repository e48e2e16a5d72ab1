"""Types of elements: kernels refuse others than they were written for, and bytes above 127 stay what they are."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.open_session import session
from tests.patterns.running import emulated_hopper, exactly, first_kernel, like, move, normal

BF16 = torch.bfloat16
FUNCTIONS = {
    "elementwise": (lambda x, b: F.gelu(x + b), (8, 64), (64,)),
    "rows": (lambda x, b: torch.softmax(x + b, -1), (8, 64), (64,)),
    "contraction": (lambda x, w: x @ w, (16, 32), (32, 24)),
    "attention": (lambda q, k: F.scaled_dot_product_attention(q, k, k), (2, 16, 32), (2, 16, 32)),
}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("pattern", FUNCTIONS)
def test_another_type_is_refused_before_anything_is_compiled(pattern, arch, tmp_path):
    function, *shapes = FUNCTIONS[pattern]
    plan = plan_kernel(trace_function(function, [normal(*shape, dtype=BF16) for shape in shapes]), arch)
    assert plan.pattern == pattern
    with session(arch) as recorded:
        kernel_fn = first_kernel(plan, tmp_path).kernel_fn
        for types in ((torch.float16, torch.float16), (BF16, torch.float32)):
            inputs = [like(normal(*shape, dtype=dtype)) for shape, dtype in zip(shapes, types)]
            with pytest.raises(ValueError, match="takes .* of bfloat16, .* of bfloat16"):
                kernel_fn(*inputs)
    assert not recorded.launches


def all_bytes(*shape: int) -> torch.Tensor:
    """Numbers from 0 to 255, on both sides of 127 in turn."""
    return (torch.arange(math.prod(shape)).view(shape) * 167 % 256).to(torch.uint8)


BYTES = {  # single elements are read of tensors that the kernels give other layouts
    "windows": (lambda x: F.interpolate(x.float(), size=(3, 5), mode="bilinear"), [all_bytes(1, 2, 4, 6)]),
    "rows": (
        lambda x, i: x.float().gather(1, i) - x.float().amax(1, keepdim=True),
        [all_bytes(4, 9), torch.arange(4)[:, None]],
    ),
    "selection": (lambda x: x.sort(-1).values, [all_bytes(4, 30)]),
    "elementwise": (lambda x, y: x.t() * y, [all_bytes(16, 8), normal(8, 16)]),
    "attention": (
        lambda q, k, v, bias: torch.softmax(q @ k.mT * 0.1 - bias, -1) @ v,
        [*(normal(1, 32, 16, dtype=BF16, seed=seed) for seed in range(3)), all_bytes(32)],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("pattern", BYTES)
def test_bytes_above_127_are_positive(pattern, tmp_path):
    function, inputs = BYTES[pattern]
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    assert plan.pattern == pattern
    with emulated_hopper():
        ours = first_kernel(plan, tmp_path).kernel_fn(*map(move, inputs)).cpu()
    (theirs,) = exactly(function, inputs)
    torch.testing.assert_close(ours, theirs, rtol=1e-2 if ours.dtype is BF16 else 1e-6, atol=1e-2)
