"""Results of the experts brought back to their tokens and summed by weight, with the shared expert's: DeepSeek-V3.

Hidden size 7168, 8 rows of the sorted results for each token.
"""

import torch

LEVEL = 4
TAGS = ("moe", "gather", "bf16", "deepseek")
DOMAIN = {"places": "positive"}  # no index is counted from the end
DERIVED_SHAPES = False  # places are indices of the rows
EMULATED_SIZES = {"tokens": 4}


def reference_fn(rows, places, weights, shared):
    """rows [tokens * chosen, hidden] bf16, places [tokens, chosen] int64, weights fp32 likewise, shared [tokens,
    hidden] bf16.
    """
    routed = (rows[places].float() * weights.unsqueeze(-1)).sum(dim=1)
    return (routed + shared.float()).to(shared.dtype)


def get_inputs(tokens=4096, chosen=8, hidden=7168):
    places = torch.randperm(tokens * chosen, device="cuda").view(tokens, chosen)
    weights = torch.softmax(torch.randn(tokens, chosen, device="cuda"), dim=1)
    rows, shared = (torch.randn(n, hidden, device="cuda").bfloat16() for n in (tokens * chosen, tokens))
    return [rows, places, weights, shared]


def get_input_sets():
    for sizes in ((64, 8, 64), (33, 2, 40), (3, 1, 1)):
        yield get_inputs(*sizes)
