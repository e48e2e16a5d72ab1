"""Temperature, the 50 best logits of each row, softmax over them, zero elsewhere: the vocabulary of Llama-3, 128256.

Logits that equal the fiftieth are kept as well, so that the order of equals does not matter.
"""

import torch

LEVEL = 3
TAGS = ("sampling", "top-k", "wide", "fp32", "llama")


def reference_fn(logits, temperature, kept):
    """logits [rows, vocabulary] fp32, temperature [rows] fp32 above zero."""
    least = torch.topk(logits, kept, dim=-1).values[:, -1:]
    return torch.softmax(logits.masked_fill(logits < least, float("-inf")) / temperature.unsqueeze(1), dim=-1)


def get_inputs(rows=256, vocabulary=128256, kept=50):
    return [4.0 * torch.randn(rows, vocabulary, device="cuda"), 0.5 + torch.rand(rows, device="cuda"), kept]


def get_input_sets():
    for sizes in ((1, 32000, 50), (7, 1001, 8), (33, 64, 1), (3, 5, 5)):
        yield get_inputs(*sizes)
