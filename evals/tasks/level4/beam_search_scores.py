"""One step of beam search over NLLB's 256206 tokens: log-softmax, the beams' own scores, the best 8 sums of 4 beams."""

import torch

LEVEL = 4
TAGS = ("top-k", "softmax", "sampling", "wide", "fp32", "nllb")


def reference_fn(logits, scores, kept):
    """logits [batch, beams, vocabulary] fp32, scores [batch, beams]; returns [batch, kept] in falling order."""
    sums = torch.log_softmax(logits, dim=-1) + scores.unsqueeze(-1)
    return torch.topk(sums.flatten(1), kept, dim=-1).values


def get_inputs(batch=32, beams=4, vocabulary=256206, kept=8):
    scores = -8.0 * torch.rand(batch, beams, device="cuda")
    return [3.0 * torch.randn(batch, beams, vocabulary, device="cuda"), scores, kept]


def get_input_sets():
    for sizes in ((1, 4, 32000, 8), (3, 5, 1001, 10), (2, 1, 7, 2)):
        yield get_inputs(*sizes)
