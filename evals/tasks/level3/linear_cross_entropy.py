"""The last projection and the cross entropy of each token without keeping the logits: Qwen2.5-0.5B's 896 columns.

32768 of its words; 4096 tokens.
"""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("matmul", "loss", "softmax", "bf16", "qwen")
DERIVED_SHAPES = False  # targets are indices of the weight's rows
EMULATED_SIZES = {"tokens": 64, "words": 160}


def reference_fn(x, weight, target):
    """x [tokens, hidden], weight [words, hidden], target [tokens] int64; returns [tokens] fp32."""
    return F.cross_entropy(x.float() @ weight.float().t(), target, reduction="none")


def get_inputs(tokens=4096, hidden=896, words=32768):
    x = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16)
    weight = (2.0 * torch.randn(words, hidden, device="cuda") * hidden**-0.5).bfloat16()
    return [x, weight, torch.randint(0, words, (tokens,), device="cuda")]


def get_input_sets():
    for sizes in ((1, 64, 1000), (33, 40, 129), (5, 8, 2)):
        yield get_inputs(*sizes)
