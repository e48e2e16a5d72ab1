"""Nucleus sampling: the fewest tokens whose probabilities reach p are kept and normalised; Mistral's 32000 tokens.

Each row's p lies in the middle between two sums that differ by more than 1 / 4096, so that rounding decides nothing.
"""

import torch

LEVEL = 3
TAGS = ("sampling", "sort", "scan", "wide", "fp32", "mistral")


def sorted_sums(logits):
    probabilities, order = torch.softmax(logits, dim=-1).sort(dim=-1, descending=True, stable=True)
    return probabilities, probabilities.cumsum(dim=-1), order


def reference_fn(logits, p):
    """logits [rows, vocabulary] fp32, p [rows] fp32."""
    probabilities, sums, order = sorted_sums(logits)
    kept = torch.where(sums - probabilities < p.unsqueeze(1), probabilities, 0.0)
    kept = kept / kept.sum(dim=-1, keepdim=True)
    return torch.zeros_like(kept).scatter(1, order, kept)


def get_inputs(rows=1024, vocabulary=32000):
    logits = 4.0 * torch.randn(rows, vocabulary, device="cuda")
    probabilities, sums, _ = sorted_sums(logits)
    wide = (probabilities > 1 / 4096).sum(dim=-1, keepdim=True)  # steps between sums, the widest first
    last = (wide * torch.rand(rows, 1, device="cuda")).long()
    return [logits, (sums - probabilities / 2).gather(1, last).squeeze(1)]


def get_input_sets():
    for sizes in ((1, 32000), (7, 1001), (33, 64), (3, 1)):
        yield get_inputs(*sizes)
