"""Causal attention within packed sequences of different lengths, given by their borders: 16 heads of 128.

Fifteen sequences of 6144 tokens together; sequence i has about i / 120 of them.
"""

import torch

LEVEL = 4
TAGS = ("attention", "causal", "ragged", "bf16")
DERIVED_SHAPES = False  # borders belong to the number of tokens
EMULATED_SIZES = {"tokens": 40, "sequences": 3}


def reference_fn(query, key, value, borders):
    """query, key, value [tokens, heads, width]; sequence i is tokens borders[i] to borders[i + 1], int64."""
    torch._assert_async((borders.diff() >= 0).all() & (borders[0] == 0) & (borders[-1] == len(query)), "bad borders")
    places = torch.arange(len(query), device=query.device)
    sequence = torch.searchsorted(borders, places, right=True)
    seen = (sequence[:, None] == sequence[None, :]) & (places[:, None] >= places[None, :])
    query, key = (tensor.float().transpose(0, 1) for tensor in (query, key))
    scores = (query @ key.transpose(1, 2)) * query.shape[-1] ** -0.5
    weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1)
    return (weights.to(value.dtype) @ value.transpose(0, 1)).transpose(0, 1).contiguous()


def lengths_of(tokens, sequences):
    """Growing with the number of the sequence, the last one taking what is left."""
    total = sequences * (sequences + 1) // 2
    lengths = [tokens * (number + 1) // total for number in range(sequences)]
    return [*lengths[:-1], tokens - sum(lengths[:-1])]


def get_inputs(tokens=6144, heads=16, width=128, sequences=15):
    tensors = [torch.randn(tokens, heads, width, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    borders = torch.tensor([0, *lengths_of(tokens, sequences)], device="cuda").cumsum(0)
    return [*tensors, borders]


def ALGORITHMIC_FLOPS(query, key, value, borders):
    """Two products over the pairs of a causal half, at the lengths of get_inputs()."""
    tokens, heads, width = query.shape
    return sum(2 * heads * width * length * (length + 1) for length in lengths_of(tokens, len(borders) - 1))


def get_input_sets():
    for sizes in ((128, 2, 64, 3), (37, 3, 32, 5), (5, 1, 16, 5), (9, 1, 128, 1)):
        yield get_inputs(*sizes)
