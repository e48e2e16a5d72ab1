"""A weight of which a quarter of the 64 x 64 blocks is kept, by the numbers of their columns, times activations.

8192 inputs, 8192 outputs; each row of blocks keeps equally many.
"""

import torch

LEVEL = 4
TAGS = ("matmul", "sparse", "gather", "bf16")
DERIVED_SHAPES = False  # columns are indices of the blocks of x
EMULATED_SIZES = {"tokens": 96, "input_blocks": 16, "output_blocks": 8, "kept": 4}


def reference_fn(x, blocks, columns):
    """x [tokens, input blocks, side], blocks [output blocks, kept, side out, side in], columns [output blocks, kept]
    int64; returns [tokens, outputs].
    """
    wide = x.float().transpose(0, 1)
    rows = [torch.einsum("kti,koi->to", wide[columns[row]], blocks[row].float()) for row in range(blocks.shape[0])]
    return torch.cat(rows, dim=1).to(x.dtype)


def get_inputs(tokens=4096, input_blocks=128, output_blocks=96, kept=32, side=64):
    columns = torch.argsort(torch.rand(output_blocks, input_blocks, device="cuda"), dim=1)[:, :kept]
    blocks = torch.randn(output_blocks, kept, side, side, device="cuda") * (kept * side) ** -0.5
    x = torch.randn(tokens, input_blocks, side, device="cuda").bfloat16()
    return [x, blocks.bfloat16(), columns.sort(dim=1).values]


def ALGORITHMIC_FLOPS(x, blocks, columns):
    return 2 * x.shape[0] * blocks.numel()


def get_input_sets():
    for sizes in ((64, 4, 2, 2, 64), (33, 3, 5, 1, 16), (1, 2, 2, 2, 8)):
        yield get_inputs(*sizes)
