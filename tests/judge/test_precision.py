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


def test_grouped_products_are_computed_group_by_group():
    rows, matrices = torch.randn(9, 16), torch.randn(3, 16, 8)
    ends = torch.tensor([2, 2, 9], dtype=torch.int32)
    for a, b in ((rows, matrices), (matrices.mT, rows.mT), (rows.mT, torch.randn(9, 4)), (matrices.mT, matrices)):
        given = (ends,) if min(a.dim(), b.dim()) == 2 else ()

        def function(a, b, *given):
            return torch.nn.functional.grouped_mm(a, b, offs=given[0] if given else None)

        found = in_float64(function, (a, b, *given))
        assert found.dtype == torch.float64
        torch.testing.assert_close(found.float(), function(a, b, *given), rtol=1e-5, atol=1e-5)
