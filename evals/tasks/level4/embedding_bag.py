"""Sums of the table rows of each bag, as DLRM looks up its sparse features: rows of 128, about 32 in each bag."""

import math

import torch
import torch.nn.functional as F

LEVEL = 4
TAGS = ("gather", "ragged", "segments", "fp32", "dlrm")
DERIVED_SHAPES = False  # ids are indices of the table's rows
EMULATED_SIZES = {"rows": 1500, "bags": 64, "lookups": 2048}


def reference_fn(table, ids, offsets):
    """table [rows, width] fp32, ids [lookups] int64, offsets [bags] int64 where each bag begins."""
    return F.embedding_bag(ids, table, offsets, mode="sum")


def ALGORITHMIC_BYTES(table, ids, offsets):
    """Rows that random lookups meet at least once (expected), the ids, and a row written for each bag."""
    rows, width = table.shape
    met = rows * (1 - math.exp(-len(ids) / rows))
    return int(4 * width * (met + len(offsets))) + 8 * (len(ids) + len(offsets))


def get_inputs(rows=1_000_000, width=128, bags=16384, lookups=524288):
    begins = torch.randint(0, lookups, (bags - 1,), device="cuda").sort().values
    offsets = torch.cat((torch.zeros(1, dtype=torch.int64, device="cuda"), begins))
    ids = (rows * torch.rand(lookups, device="cuda")).long().clamp(max=rows - 1)
    return [torch.randn(rows, width, device="cuda"), ids, offsets]


def get_input_sets():
    for sizes in ((1000, 64, 16, 128), (33, 5, 7, 21), (3, 1, 1, 4)):
        yield get_inputs(*sizes)
