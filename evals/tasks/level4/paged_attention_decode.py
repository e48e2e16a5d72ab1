"""One decoding step over a paged key-value cache: Llama-3-8B's 32 query and 8 key heads, pages of 16 tokens.

48 sequences of up to 2048 tokens; a sequence's pages are scattered over the cache.
"""

import torch

LEVEL = 4
TAGS = ("attention", "decode", "paged", "gqa", "gather", "bf16", "llama")
DOMAIN = {"tables": "positive"}  # no index is counted from the end
DERIVED_SHAPES = False  # page numbers are indices of the cache
EMULATED_SIZES = {"batch": 2, "most": 4}


def reference_fn(query, key_cache, value_cache, tables, lengths):
    """query [batch, heads, width]; caches [pages, page size, key heads, width]; tables [batch, most pages] int64 page
    numbers; lengths [batch] int64 tokens of each sequence, at least one.
    """
    longest = tables.shape[1] * key_cache.shape[1]
    torch._assert_async(((lengths > 0) & (lengths <= longest)).all(), "a length is not that of a sequence")
    key, value = (cache[tables].flatten(1, 2) for cache in (key_cache, value_cache))
    grouped = query.float().unflatten(1, (key.shape[2], -1))
    scores = torch.einsum("bhgw,bthw->bhgt", grouped, key.float()) * query.shape[-1] ** -0.5
    beyond = torch.arange(longest, device=lengths.device) >= lengths.unsqueeze(1)
    weights = torch.softmax(scores.masked_fill(beyond[:, None, None, :], float("-inf")), dim=-1)
    return torch.einsum("bhgt,bthw->bhgw", weights.to(value.dtype), value).flatten(1, 2)


def get_inputs(batch=48, heads=32, key_heads=8, width=128, page=16, most=128):
    def draw(*shape):
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    tables = torch.randperm(batch * most, device="cuda").view(batch, most)
    lengths = page * most - torch.arange(batch, device="cuda") * (page * most // 2) // batch
    caches = [draw(batch * most, page, key_heads, width) for _ in range(2)]
    return [draw(batch, heads, width), *caches, tables, lengths]


def tokens_read(batch, longest):
    return sum(longest - number * (longest // 2) // batch for number in range(batch))


def ALGORITHMIC_BYTES(query, key_cache, value_cache, tables, lengths):
    """Whole sequences of get_inputs(): their keys and values, the queries twice."""
    _, page, key_heads, width = key_cache.shape
    tokens = tokens_read(len(lengths), tables.shape[1] * page)
    return 2 * (2 * tokens * key_heads * width + 2 * query.numel()) + 8 * (tables.numel() + lengths.numel())


def ALGORITHMIC_FLOPS(query, key_cache, value_cache, tables, lengths):
    return 4 * query.shape[1] * query.shape[2] * tokens_read(len(lengths), tables.shape[1] * key_cache.shape[1])


def get_input_sets():
    for sizes in ((1, 4, 1, 128, 16, 2), (3, 6, 2, 64, 16, 5), (5, 2, 2, 32, 1, 7)):
        yield get_inputs(*sizes)
