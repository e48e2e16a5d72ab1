"""Static quantisation of a bf16 matrix to int8 with a given scale."""

import torch

LEVEL = 1
TAGS = ("elementwise", "int8", "mixed", "scalar")


def reference_fn(x, inverse_scale):
    return torch.clamp(torch.round(x.float() * inverse_scale), -128, 127).to(torch.int8)


def get_inputs(rows=16384, columns=4096):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16), 31.75]


def get_input_sets():
    for rows, columns, inverse_scale in ((33, 1000, 64.0), (7, 129, 20.0), (1, 1, 10.0)):
        x, _ = get_inputs(rows, columns)
        yield [x, inverse_scale]
