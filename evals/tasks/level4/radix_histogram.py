"""How often each value of one byte of 32-bit keys occurs in each block of 65536 keys: a pass of a radix sort."""

import torch

LEVEL = 4
TAGS = ("histogram", "atomics", "int32")


def reference_fn(keys, shift):
    """keys [blocks, members] int32, shift of 0, 8, 16 or 24 bits; returns counts [blocks, 256] int32."""
    digits = ((keys >> shift) & 255).long()
    counts = torch.zeros(keys.shape[0], 256, dtype=torch.int32, device=keys.device)
    return counts.scatter_add(1, digits, torch.ones_like(keys))


def get_inputs(blocks=1024, members=65536, shift=8):
    return [torch.randint(-(2**31), 2**31 - 1, (blocks, members), device="cuda", dtype=torch.int32), shift]


def get_input_sets():
    for sizes in ((1, 65536, 24), (33, 1000, 0), (7, 129, 16), (5, 1, 8)):
        yield get_inputs(*sizes)
