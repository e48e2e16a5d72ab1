"""Few queries and many keys on Hopper: blocks read parts of the keys, beneath masks, beside sinks, behind caches."""

from __future__ import annotations

import pytest
import torch

from cutesmith.patterns.attention.plan import match
from cutesmith.patterns.cutting.scores import with_joined_factors, with_plain_scores
from cutesmith.patterns.graph.joined import with_parts_of_joined
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import emulated_hopper, exactly, load, move, normal
from tests.patterns.test_attention import heads, masked, written_out
from tests.patterns.test_attention_in_models import sink_before_the_keys
from tests.patterns.test_attention_masks import behind_a_cache, cached, seen

slow = pytest.mark.slow
BF16 = torch.bfloat16


def last_keys(q, k, v):
    """The last queries of all keys, each of which sees 1060 keys."""
    first = k.shape[-2] - q.shape[-2]
    hidden = lambda i, j: (j > i + first) | (i + first - j >= 1060)  # noqa: E731
    return written_out(q, k, v, change=lambda s, i, j: s.masked_fill(hidden(i, j), -torch.inf))


FEW_SEEN = seen(3, 1152)
FEW_SEEN[1] = False
ONE = heads(1, 1100, 16, heads=(1, 4))
CASES = {
    "mask of keys": (masked, (*ONE, seen(1, 1, 1, 1100))),
    "tiles of a mask": (masked, (*heads(3, 1152), FEW_SEEN)),
    "bias of heads": (masked, (*heads(3, 1104, heads=(1, 2)), normal(1, 2, 3, 1104, dtype=BF16))),
    "window": (last_keys, heads(5, 1400)),
    "sink": (sink_before_the_keys, (*heads(3, 1100, heads=(1, 2)), normal(2, dtype=BF16))),
    "cache": (behind_a_cache, (*cached(3, 1040, 48), seen(3, 1088))),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_results(name, tmp_path):
    function, inputs = CASES[name]
    plan = match(with_joined_factors(with_plain_scores(with_parts_of_joined(trace_function(function, inputs)))))
    text = plan.render(plan.configurations("sm_90a")[0])
    assert "combine_kernel" in text
    with emulated_hopper():
        ours = load(text, tmp_path).kernel_fn(*map(move, inputs)).cpu()
    (theirs,) = exactly(function, inputs)
    torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2, equal_nan=True)
