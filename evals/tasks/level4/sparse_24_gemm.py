"""A weight of which 2 of 4 numbers in a row are kept, with their places in two bits, times activations.

Llama-2-7B's 4096 to 11008; the four places of two quadruples are in one byte, the first in the lowest bits.
"""

import torch

LEVEL = 4
TAGS = ("matmul", "sparse", "fp16", "llama")


def reference_fn(x, kept, places):
    """x [tokens, bytes of a row, 8], kept [outputs, bytes of a row, 4] fp16, places [outputs, bytes of a row] uint8."""
    shifts = torch.arange(0, 8, 2, device=places.device, dtype=torch.uint8)
    two_bits = (places.unsqueeze(-1) >> shifts) & 3
    offsets = torch.tensor([0, 0, 4, 4], device=places.device)
    weight = torch.zeros(*places.shape, 8, device=kept.device, dtype=torch.float32)
    first, second = two_bits.long().add(offsets).unflatten(-1, (2, 2)).unbind(-1)
    values = kept.float().unflatten(-1, (2, 2))
    weight = weight.scatter(-1, first, values[..., 0]).scatter(-1, second, values[..., 1])
    return (x.float().flatten(1) @ weight.flatten(1).t()).to(x.dtype)


def get_inputs(tokens=2048, row_bytes=512, outputs=11008):
    pairs = torch.tensor([0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110], device="cuda")  # ascending places
    low, high = (pairs[torch.randint(0, 6, (outputs, row_bytes), device="cuda")] for _ in range(2))
    kept = torch.randn(outputs, row_bytes, 4, device="cuda") * (4 * row_bytes) ** -0.5
    x = torch.randn(tokens, row_bytes, 8, device="cuda", dtype=torch.float16)
    return [x, kept.half(), (low | high << 4).to(torch.uint8)]


def ALGORITHMIC_FLOPS(x, kept, places):
    """Only what is kept is multiplied, which halves the operations."""
    return 2 * x.shape[0] * kept.numel()


def get_input_sets():
    for sizes in ((1, 16, 64), (33, 5, 40), (7, 1, 3)):
        yield get_inputs(*sizes)
