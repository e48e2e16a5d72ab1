"""One decoding step over a paged cache of int8 keys and values with a scale for each token and head; Mistral-7B.

32 query and 8 key heads of 128, pages of 32 tokens, every page full.
"""

import torch

LEVEL = 4
TAGS = ("attention", "decode", "paged", "gqa", "gather", "dequantize", "fp16", "int8", "mistral")
DOMAIN = {"tables": "positive"}  # no index is counted from the end
DERIVED_SHAPES = False  # page numbers are indices of the cache
EMULATED_SIZES = {"batch": 2, "most": 2}


def reference_fn(query, keys, key_scales, values, value_scales, tables):
    """query [batch, heads, width] fp16; keys, values [pages, page size, key heads, width] int8, their scales without
    the width, fp32; tables [batch, pages of a sequence] int64.
    """
    key = (keys[tables].float() * key_scales[tables].unsqueeze(-1)).flatten(1, 2)
    value = (values[tables].float() * value_scales[tables].unsqueeze(-1)).flatten(1, 2)
    grouped = query.float().unflatten(1, (key.shape[2], -1))
    scores = torch.einsum("bhgw,bthw->bhgt", grouped, key) * query.shape[-1] ** -0.5
    weights = torch.softmax(scores, dim=-1).to(query.dtype)
    return torch.einsum("bhgt,bthw->bhgw", weights, value.to(query.dtype)).flatten(1, 2)


def get_inputs(batch=64, heads=32, key_heads=8, width=128, page=32, most=64):
    def cache():
        numbers = torch.randint(-127, 128, (batch * most, page, key_heads, width), device="cuda", dtype=torch.int8)
        return numbers, (0.5 + torch.rand(batch * most, page, key_heads, device="cuda")) / 74.0

    query = torch.randn(batch, heads, width, device="cuda", dtype=torch.float16)
    return [query, *cache(), *cache(), torch.randperm(batch * most, device="cuda").view(batch, most)]


def get_input_sets():
    for sizes in ((1, 4, 1, 128, 16, 2), (3, 6, 2, 64, 32, 3), (5, 2, 2, 32, 1, 7)):
        yield get_inputs(*sizes)
