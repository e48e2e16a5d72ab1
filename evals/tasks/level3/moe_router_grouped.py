"""Routing of DeepSeek-V3: a correction bias on the scores, the best 4 of 8 groups, the best 8 of 256 experts.

A group's worth is the sum of its two best biased scores; weights are unbiased scores, normalised and scaled by 2.5.
Scores are multiples of 2**-12: every comparison is exact, and equals are chosen together.
"""

import torch

LEVEL = 3
TAGS = ("moe", "top-k", "fp32", "deepseek")
CHOSEN_GROUPS, CHOSEN, FACTOR = 4, 8, 2.5


def reference_fn(scores, bias):
    """scores [tokens, groups, experts of a group], bias [groups, experts of a group]."""
    biased = scores + bias
    worth = torch.topk(biased, 2, dim=-1).values.sum(dim=-1)
    least_worth = torch.topk(worth, CHOSEN_GROUPS, dim=-1).values[:, -1:]
    open_groups = (worth >= least_worth).unsqueeze(-1)
    candidates = biased.masked_fill(~open_groups, float("-inf")).flatten(1)
    least = torch.topk(candidates, CHOSEN, dim=-1).values[:, -1:]
    weights = torch.where(candidates >= least, scores.flatten(1), 0.0)
    return FACTOR * weights / weights.sum(dim=-1, keepdim=True)


def get_inputs(tokens=65536, groups=8, experts=32):
    scores = torch.ceil(4096 * torch.rand(tokens, groups, experts, device="cuda")).clamp(min=1) / 4096
    return [scores, torch.round(64 * torch.randn(groups, experts, device="cuda")) / 4096]


def get_input_sets():
    for sizes in ((1, 8, 32), (33, 8, 4), (7, 4, 8), (5, 6, 20)):
        yield get_inputs(*sizes)
