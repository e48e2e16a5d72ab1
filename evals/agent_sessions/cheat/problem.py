"""SwiGLU of a transformer's MLP: silu(gate) * up, elementwise in bf16."""

import torch
import torch.nn.functional as F


def reference_fn(gate, up):
    return F.silu(gate) * up


def get_inputs(rows=16384):
    return [torch.randn(rows, 3072, device="cuda", dtype=torch.bfloat16) for _ in range(2)]


def get_input_sets():
    yield get_inputs(rows=3)


DERIVED_SHAPES = False  # a model's width is fixed: kernels may be written for it
