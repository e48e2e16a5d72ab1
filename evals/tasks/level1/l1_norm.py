"""L1 norm of each row of a fp16 matrix."""

import torch

LEVEL = 1
TAGS = ("row-reduction", "fp16")


def reference_fn(x):
    return torch.linalg.vector_norm(x, ord=1, dim=-1)


def get_inputs(rows=32768, columns=2048):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.float16)]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 2), (0, 64)):
        yield get_inputs(rows, columns)
