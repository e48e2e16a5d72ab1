"""Every pattern's kernel refuses tensors of other types than it was written for: its registers have those."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.open_session import session
from tests.patterns.running import first_kernel, like, normal

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
