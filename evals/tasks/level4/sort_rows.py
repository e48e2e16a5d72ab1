"""Rows of 4096 int32 keys in rising order, each with the place that it came from; equal keys keep their order."""

import torch

LEVEL = 4
TAGS = ("sort", "outputs", "int32")


def reference_fn(keys):
    found = torch.sort(keys, dim=-1, stable=True)
    return found.values, found.indices.to(torch.int32)


def get_inputs(rows=4096, columns=4096):
    return [torch.randint(0, 65536, (rows, columns), device="cuda", dtype=torch.int32)]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1)):
        yield get_inputs(rows, columns)
