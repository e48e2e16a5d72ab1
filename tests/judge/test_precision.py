"""Functions in float64: those that PyTorch's CPU kernels compute otherwise than a GPU."""

import torch

from cutesmith.judge.reference_side.precision import in_float64


def test_scales_of_float8_multiply_sums():
    x, w = torch.tensor([[0.0, 2.0], [1.0, 0.0]]).repeat(1, 8), torch.ones(16, 16)
    rows, columns = torch.tensor([[0.5], [2.0]]), torch.full((1, 16), torch.inf)
    columns[0, 1:] = 3.0
    bias = torch.ones(16, dtype=torch.bfloat16)

    def function(x, w, rows, columns, bias):
        return torch._scaled_mm(x, w.t(), rows, columns, bias=bias, out_dtype=torch.bfloat16)

    eighths = (each.to(torch.float8_e4m3fn) for each in (x, w))
    found = in_float64(function, (*eighths, rows, columns, bias))
    expected = torch.tensor([[torch.inf] + [25.0] * 15, [torch.inf] + [49.0] * 15], dtype=torch.float64)
    assert torch.equal(found, expected)
