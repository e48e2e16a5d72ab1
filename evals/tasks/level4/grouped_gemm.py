"""Each expert's weight times the rows that were sorted to it: 64 experts of DeepSeekMoE-16B, 2048 to 2 * 1408.

Rows of an expert lie together and end where `ends` says; experts have different numbers of rows, some none.
"""

import torch

LEVEL = 4
TAGS = ("matmul", "grouped", "ragged", "moe", "bf16", "deepseek")
DERIVED_SHAPES = False  # the ends belong to the number of rows
EMULATED_SIZES = {"rows": 160, "experts": 3, "inputs": 256, "outputs": 256}


def reference_fn(x, weight, ends):
    """x [rows, inputs], weight [experts, outputs, inputs], ends [experts] int64, growing to the number of rows."""
    bounds = [0, *ends.tolist()]
    if sorted(bounds) != bounds or bounds[-1] != len(x):
        raise ValueError(f"the ends do not divide {len(x)} rows")
    parts = [
        x[begin:end].float() @ w.float().t() for begin, end, w in zip(bounds[:-1], bounds[1:], weight, strict=True)
    ]
    return torch.cat(parts).to(x.dtype)


def ALGORITHMIC_FLOPS(x, weight, ends):
    return 2 * x.shape[0] * weight.shape[1] * weight.shape[2]


def ALGORITHMIC_BYTES(x, weight, ends):
    return 2 * (x.numel() + weight.numel() + x.shape[0] * weight.shape[1]) + 8 * ends.numel()


def get_inputs(rows=24576, experts=64, inputs=2048, outputs=2816):
    weight = (torch.randn(experts, outputs, inputs, device="cuda") * inputs**-0.5).bfloat16()
    cuts = torch.sort(torch.randint(0, rows + 1, (experts - 1,), device="cuda")).values
    ends = torch.cat((cuts, torch.full((1,), rows, device="cuda")))
    return [torch.randn(rows, inputs, device="cuda", dtype=torch.bfloat16), weight, ends]


def get_input_sets():
    for sizes in ((128, 4, 64, 96), (33, 7, 40, 72), (3, 8, 16, 8), (9, 1, 8, 8)):
        yield get_inputs(*sizes)
