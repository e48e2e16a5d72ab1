"""The normalised Hadamard transform of rows of 4096 numbers, as QuaRot and SpinQuant rotate activations; bf16."""

import torch

LEVEL = 4
TAGS = ("transform", "bf16", "llama")


def reference_fn(x):
    """x [rows, a power of two]; Sylvester's order, so that doing it twice gives x."""
    rows, columns = x.shape
    if columns & (columns - 1):
        raise ValueError(f"{columns} columns are not a power of two")
    value, width = x.float(), 1
    while width < columns:
        left, right = value.view(rows, columns // (2 * width), 2, width).unbind(dim=2)
        value = torch.stack((left + right, left - right), dim=2).view(rows, columns)
        width *= 2
    return (value * columns**-0.5).to(x.dtype)


def get_inputs(rows=16384, columns=4096):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 512), (7, 8), (5, 1), (3, 2)):
        yield get_inputs(rows, columns)
