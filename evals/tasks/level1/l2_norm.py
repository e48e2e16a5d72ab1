"""L2 norm of each row of a fp32 matrix."""

import torch

LEVEL = 1
TAGS = ("row-reduction", "fp32")


def reference_fn(x):
    return torch.linalg.vector_norm(x, dim=-1)


def get_inputs(rows=16384, columns=4096):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.float32)]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 2), (0, 64)):
        yield get_inputs(rows, columns)
