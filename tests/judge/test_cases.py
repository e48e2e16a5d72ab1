"""Inputs with fewer rows for the emulated GPU."""

import pytest
import torch

from cutesmith.judge.reference_side.cases import fit, resize, smaller_sizes


def shrink(inputs, most_elements):
    return resize(inputs, next(smaller_sizes(inputs, most_elements), {}))


def shapes(values):
    return [tuple(value.shape) for value in values if isinstance(value, torch.Tensor)]


SMALLER = {
    "the largest outer dimension is halved": ([(512, 64), (512, 64), (64,)], 4096, [(16, 64), (16, 64), (64,)]),
    "an odd size stays odd, as the last row is why there are 129": ([(129, 64)], 4096, [(33, 64)]),
    "so does another": ([(3, 1001, 64)], 4096, [(3, 15, 64)]),
    "columns stay": ([(4, 5000)], 1000, [(1, 5000)]),
    "and a vector": ([(5000,)], 1000, [(5000,)]),
    "and a size that is a last dimension somewhere": ([(64, 64), (64,)], 100, [(64, 64), (64,)]),
    "scales and labels of rows": ([(512, 64), (512,), (512,), (64,)], 2048, [(16, 64), (16,), (16,), (64,)]),
    "where rows are columns neither shrinks alone": ([(1024, 1024), (1024,)], 1 << 18, [(1024, 1024), (1024,)]),
    "but both do": ([(1024, 1024), (1024, 1024), (1024,)], 1 << 17, [(256, 256), (256, 256), (256,)]),
    "far too many columns shrink": ([(1 << 16,)], 1 << 12, [(1 << 12,)]),
    "and stay divisible": ([(2, 100_008)], 1000, [(2, 384)]),
}


@pytest.mark.parametrize(("given", "most", "smaller"), SMALLER.values(), ids=SMALLER)
def test_inputs_with_fewer_elements(given, most, smaller):
    assert shapes(shrink([*map(torch.randn, given), 1e-6], most)) == smaller


def test_labels_stay_inside_what_they_index():
    table, index = torch.randn(1000, 8), torch.randint(1000, (300, 4))
    smaller, fewer = shrink([table, index], 400)
    assert smaller.shape[0] < 1000
    assert int(fewer.max()) < smaller.shape[0]


def test_small_inputs_are_left_alone():
    x = torch.randn(8, 8)
    same, three = shrink([x, 3], 64)
    assert torch.equal(same, x) and three == 3


def test_a_reference_that_refuses_gets_the_next_best():
    x, scale = torch.randn(512, 16, 64), torch.randn(512)

    def whole_scale(values):
        return "" if len(values[1]) == 512 else "512 scales"

    assert shapes(shrink([x, scale], 40_000)) == [(32, 16, 64), (32,)]
    assert shapes(fit([x, scale], 40_000, whole_scale).values) == [(512, 1, 64), (512,)]
    refused = fit([x, scale], 40_000, lambda values: "RuntimeError: 512 rows")
    assert shapes(refused.values) == [(512, 16, 64), (512,)]
    assert refused.size == "524,800 elements; reference_fn refuses fewer: RuntimeError: 512 rows"


def test_layouts_in_memory_stay():
    weight = torch.randn(64, 512).t()
    assert [value.stride() for value in shrink([torch.randn(8, 64), weight], 4096)] == [(64, 1), (1, 32)]
    assert shrink([weight], 1 << 20)[0].stride() == (1, 512)


def test_sizes_that_a_modules_parameters_share_can_stay():
    images, weights = torch.randn(8, 16, 32, 32), torch.randn(16, 1, 3, 3)
    smaller = [shapes(resize([images, weights], sizes)) for sizes in smaller_sizes([images, weights], 10000)]
    assert smaller[-1][1] == (16, 1, 3, 3) and smaller[-1][0][1] == 16 and smaller[-1][0] < (8, 16, 32, 32)


def test_gates_of_a_cell_shrink_with_its_units():
    """A cell of 4096 units had 84 million elements beside one row, as its weights have four times as many rows."""

    def refusal(values):
        x, hidden, of_inputs, of_hidden = values
        try:
            gates = x @ of_inputs.t() + hidden @ of_hidden.t()
        except RuntimeError as error:
            return str(error)
        return "" if gates.shape[1] == 4 * hidden.shape[1] else "no four gates"

    inputs = [torch.empty(shape) for shape in ((512, 640), (512, 1024), (4096, 640), (4096, 1024))]
    fitted = fit(inputs, 1 << 18, refusal)
    assert shapes(fitted.values) == [(1, 256), (1, 256), (1024, 256), (1024, 256)]
    assert fitted.sizes == {512: 1, 640: 256, 1024: 256, 4096: 1024}
    few = fit(inputs, 1 << 20, refusal)  # some seven times as many are not far too many: columns stay
    assert shapes(few.values) == shapes(inputs)
