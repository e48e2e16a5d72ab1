"""Results of traced operations: what is remembered of PyTorch's answer is what PyTorch answers again."""

from __future__ import annotations

import itertools

import pytest
import torch

from cutesmith.patterns.graph.dtypes import dtype_name
from cutesmith.patterns.tracing import meta_results
from cutesmith.patterns.tracing.meta_results import result_of
from cutesmith.patterns.tracing.trace import trace_function

aten = torch.ops.aten


def of(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def likeness(result):
    results = result if isinstance(result, (tuple, list)) else [result]
    return [(each.shape, each.stride(), each.dtype, each.device) for each in results]


LAYOUTS = {
    "rows": of(6, 4),
    "columns": of(4, 6).t(),
    "one row": of(1, 4),
    "one column": of(6, 1),
    "number": of(),
    "line": of(4),
    "batch": of(3, 6, 4),
    "channels last": of(3, 4, 6).transpose(1, 2),
    "single": of(1, 1),
    "turned batch": of(6, 4, 3).permute(2, 0, 1),
}


@pytest.mark.parametrize(("first", "second"), [*itertools.combinations_with_replacement(LAYOUTS, 2)])
def test_broadcast_operands_give_the_strides_of_pytorch(first, second):
    a, b = LAYOUTS[first], LAYOUTS[second]
    for func, y in itertools.product((aten.add.Tensor, aten.gt.Tensor, aten.div.Tensor), (b, b.to(torch.int32))):
        for _ in range(2):
            assert likeness(result_of(func, (a, y), {})) == likeness(func(a, y))


OPERATIONS = {
    "comparison": (aten.lt.Scalar, (of(5, 4), 2), {}),
    "number of an integer": (aten.mul.Tensor, (of(5, 4, dtype=torch.int32), 2.5), {}),
    "a half and a number in memory": (aten.add.Tensor, (of(5, dtype=torch.float16), of()), {}),
    "three operands": (aten.where.self, (of(5, 1, dtype=torch.bool), of(5, 4), of(4)), {}),
    "activation": (aten.gelu.default, (of(5, 4),), {"approximate": "tanh"}),
    "cast": (aten._to_copy.default, (of(5, 4),), {"dtype": torch.bfloat16}),
    "sum": (aten.sum.dim_IntList, (of(5, 4), [-1], True), {}),
    "sum of another type": (aten.sum.dim_IntList, (of(5, 4), [-1], True), {"dtype": torch.float64}),
    "several results": (aten.native_layer_norm.default, (of(5, 4), [4], of(4), None, 1e-5), {}),
    "joined": (aten.cat.default, ([of(5, 4), of(2, 4)], 0), {}),
    "joined otherwise": (aten.cat.default, ([of(5, 4), of(5, 4)], 1), {}),
    "convolution": (aten.convolution.default, (of(2, 3, 8), of(4, 3, 3), None, [1], [1], [1], False, [0], 1), {}),
    "list of results": (aten.unsafe_split.Tensor, (of(5, 4), 2), {}),
    "made of nothing": (aten.arange.start_step, (0, 7, 2), {"device": torch.device("meta")}),
}


@pytest.mark.parametrize("func, args, named", OPERATIONS.values(), ids=list(OPERATIONS))
def test_the_second_answer_is_the_first(func, args, named):
    expected = likeness(func(*args, **named))
    for _ in range(2):
        assert likeness(result_of(func, args, named)) == expected


@pytest.mark.parametrize("first, second", [*itertools.permutations((torch.float64, torch.float32, torch.bfloat16), 2)])
@pytest.mark.parametrize("name", ["huber_loss", "soft_margin_loss", "binary_cross_entropy_with_logits", "mse_loss"])
def test_a_loss_of_two_types_has_the_type_that_it_has_with_values(name, first, second):
    loss = getattr(torch.nn.functional, name)
    inputs = torch.rand(5, dtype=first), torch.rand(5, dtype=second)
    (output,) = trace_function(loss, inputs).outputs
    assert output.dtype == dtype_name(loss(*inputs).dtype)


def test_contiguous_operands_of_other_sizes_need_no_answer():
    class Asked:
        """An operation that PyTorch is asked for once."""

        def __init__(self) -> None:
            self.times = 0
            self._schema, self.tags = aten.sub.Tensor._schema, aten.sub.Tensor.tags

        def __call__(self, *args):
            self.times += 1
            return aten.sub.Tensor(*args)

    func = Asked()
    for rows in (2, 3, 5):
        assert result_of(func, (of(rows, 4), of(rows, 4)), {}).shape == (rows, 4)
    assert func.times == 1


def test_views_and_results_that_are_their_operand_lie_in_its_memory():
    x = of(5, 4)
    for _ in range(2):
        assert result_of(aten.dropout.default, (x, 0.5, False), {}) is x
        assert meta_results._memory(result_of(aten.view.default, (x, [20]), {})) == meta_results._memory(x)


def test_results_have_memory_of_their_own():
    x = of(5, 4)
    first, second = (result_of(aten.exp.default, (x,), {}) for _ in range(2))
    assert len({meta_results._memory(each) for each in (x, first, second)}) == 3


def test_values_of_operands_are_kept():
    x = torch.tensor([1.0, 2.0])
    for _ in range(2):
        assert result_of(aten.add.Tensor, (x, x), {}).tolist() == [2, 4]


def test_the_default_type_is_asked_for():
    counts = of(5, dtype=torch.int32)
    before = torch.get_default_dtype()
    assert result_of(aten.div.Tensor, (counts, 2), {}).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert result_of(aten.div.Tensor, (counts, 2), {}).dtype == torch.float64
    finally:
        torch.set_default_dtype(before)


def test_shapes_that_do_not_fit_are_refused_by_pytorch():
    for _ in range(2):
        with pytest.raises(RuntimeError, match="broadcast"):
            result_of(aten.add.Tensor, (of(5, 4), of(5, 3)), {})
