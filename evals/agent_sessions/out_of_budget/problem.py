"""Bias, then GELU with its tanh approximation, as in a GPT-2 MLP, bf16."""

import torch
import torch.nn.functional as F


def reference_fn(x, bias):
    return F.gelu(x + bias, approximate="tanh")


def get_inputs(rows=16384):
    return [
        torch.randn(rows, 3072, device="cuda", dtype=torch.bfloat16),
        torch.randn(3072, device="cuda", dtype=torch.bfloat16),
    ]


def get_input_sets():
    yield get_inputs(rows=3)


DERIVED_SHAPES = False  # a model's width is fixed: kernels may be written for it
