"""The rows of a batch sorted by expert for a mixture of experts: OLMoE-1B-7B's 64 experts, 8 for each token.

Pairs of token and expert are ordered by expert, then token; returned with the number of pairs of each expert.
"""

import torch

LEVEL = 4
TAGS = ("moe", "sort", "gather", "outputs", "bf16", "olmoe")
DERIVED_SHAPES = False  # experts are numbers below the count
EMULATED_SIZES = {"tokens": 96}


def reference_fn(x, experts, count):
    """x [tokens, hidden] bf16, experts [tokens, chosen] int64, distinct in each row; returns rows, source tokens,
    pairs of each expert.
    """
    flat = experts.flatten()
    torch._assert_async(((flat >= 0) & (flat < count)).all(), "no such expert")
    order = torch.argsort(flat, stable=True)
    source = order // experts.shape[1]
    return (
        x[source],
        source,
        torch.zeros(count, dtype=torch.int64, device=x.device).index_add(0, flat, torch.ones_like(flat)),
    )


def get_inputs(tokens=8192, hidden=2048, count=64, chosen=8):
    ranked = torch.argsort(torch.rand(tokens, count, device="cuda"), dim=1)
    return [torch.randn(tokens, hidden, device="cuda").bfloat16(), ranked[:, :chosen].contiguous(), count]


def get_input_sets():
    for sizes in ((128, 64, 8, 2), (33, 40, 60, 4), (1, 8, 3, 3), (7, 1, 2, 1)):
        yield get_inputs(*sizes)
