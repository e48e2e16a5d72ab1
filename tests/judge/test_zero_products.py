"""Zeros around the inputs of convolutions and weights of masked keys, which a kernel may multiply with Inf."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from cutesmith.judge.reference_side.convolution_taps import ByTaps
from cutesmith.judge.reference_side.masked_keys import ByMaskedKeys, _without_zeros
from cutesmith.judge.reference_side.zero_products import open_elements
from tests.judge.in_process import reference_of, said_of

FORMS = {
    "conv1d": (functional.conv1d, (2, 4, 17), (6, 4, 5), {"padding": 2, "stride": 2}),
    "conv2d": (functional.conv2d, (2, 4, 9, 12), (6, 2, 3, 4), {"padding": (1, 3), "groups": 2, "dilation": (2, 1)}),
    "same": (functional.conv2d, (1, 3, 8, 9), (2, 3, 4, 3), {"padding": "same"}),
    "one image": (functional.conv2d, (3, 8, 9), (2, 3, 3, 3), {"padding": 1}),
    "conv3d": (functional.conv3d, (1, 2, 5, 6, 7), (3, 2, 3, 2, 3), {"padding": 1, "stride": (1, 2, 1)}),
    "transposed 1d": (functional.conv_transpose1d, (2, 4, 7), (4, 3, 4), {"stride": 3, "output_padding": 2}),
    "transposed 2d": (
        functional.conv_transpose2d,
        (2, 4, 5, 6),
        (4, 3, 3, 2),
        {"stride": (2, 1), "padding": (2, 1), "groups": 2, "dilation": (1, 2), "output_padding": (1, 0)},
    ),
    "cut by padding": (functional.conv_transpose2d, (1, 2, 6, 6), (2, 3, 2, 2), {"padding": 2}),
    "transposed 3d": (functional.conv_transpose3d, (1, 2, 3, 4, 3), (2, 2, 3, 3, 2), {"stride": 2, "padding": 1}),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("multiplies", [True, False])
@pytest.mark.parametrize(("function", "image", "weight", "named"), FORMS.values(), ids=FORMS)
def test_of_finite_weights_both_sums_are_the_convolution(function, image, weight, named, multiplies):
    torch.manual_seed(0)
    values = [torch.randn(image).double(), torch.randn(weight).double()]
    outputs = weight[1] * named.get("groups", 1) if "transpose" in function.__name__ else weight[0]
    bias = torch.randn(outputs).double()
    with ByTaps(multiplies=multiplies) as mode:
        actual = function(*values, bias, **named)
    assert mode.replaced == 1
    torch.testing.assert_close(actual, function(*values, bias, **named), rtol=1e-12, atol=1e-12)


def with_an_infinite_tap(*shape):
    torch.manual_seed(1)
    weight = torch.randn(shape)
    weight[0, 0, 0, 0] = torch.inf
    return weight


def by_taps(function, *values, multiplies):
    with ByTaps(multiplies=multiplies):
        return function(*values)


PADDED = "torch.relu(torch.nn.functional.conv2d({image}, x, padding=1))"
SPACED = "torch.nn.functional.conv_transpose2d({image}, x, stride=2)"
IMAGE = "torch.linspace(-1, 1, 2 * 3 * 36).view(2, 3, 6, 6).to(x.dtype)"


@pytest.mark.parametrize(
    ("formula", "weight"), [(PADDED, (4, 3, 3, 3)), (SPACED, (3, 4, 3, 3))], ids=["padded", "spaced"]
)
def test_a_kernel_may_multiply_the_zeros_and_may_leave_them_out(tmp_path, formula, weight):
    reference, weight = reference_of(tmp_path, formula.format(image=IMAGE)), with_an_infinite_tap(*weight)
    function = reference.loaded.reference_fn
    without, zeros = (by_taps(function, weight, multiplies=multiplies) for multiplies in (False, True))
    assert int(zeros.isnan().sum()) > int(without.isnan().sum()), "the zeros matter here"
    verdicts = [said_of(reference, tmp_path, weight, output, derived=True) for output in (without, zeros)]
    assert [verdict.violation for verdict in verdicts] == [None, None]
    if formula is SPACED:  # PyTorch multiplies zeros around an image in float64, not in float32, and none between
        assert any("may be NaN" in verdict.note for verdict in verdicts)


@pytest.mark.parametrize(
    ("formula", "weight"), [(PADDED, (4, 3, 3, 3)), (SPACED, (3, 4, 3, 3))], ids=["padded", "spaced"]
)
@pytest.mark.parametrize("fault", ["taken for zero", "NaN everywhere"])
def test_a_kernel_that_is_wrong_about_inf_where_no_zero_is_read_is_found(tmp_path, formula, weight, fault):
    reference, weight = reference_of(tmp_path, formula.format(image=IMAGE)), with_an_infinite_tap(*weight)
    output = reference.loaded.reference_fn(weight.nan_to_num(0, 0, 0))
    if fault == "NaN everywhere":
        output = torch.full_like(output, torch.nan)
    violation = said_of(reference, tmp_path, weight, output, derived=True).violation
    assert violation is not None and "NaN" in violation.text


def test_finite_weights_and_functions_without_convolution_leave_nothing_open():
    finite, infinite = torch.randn(4, 3, 3, 3), with_an_infinite_tap(4, 3, 3, 3)
    image = torch.full((1, 3, 6, 6), torch.inf)
    assert open_elements(lambda x, w: functional.conv2d(x, w, padding=1), [image, finite]) == [None]
    assert open_elements(lambda x, w: functional.conv2d(x, w), [torch.ones(1, 3, 6, 6), infinite]) == [None]
    assert open_elements(lambda w: w.relu(), [infinite]) == []


@pytest.mark.parametrize(
    ("formula", "weight"), [(PADDED, (4, 3, 3, 3)), (SPACED, (3, 4, 3, 3))], ids=["padded", "spaced"]
)
def test_another_number_is_found_where_nan_passes(tmp_path, formula, weight):
    reference, weight = reference_of(tmp_path, formula.format(image=IMAGE)), with_an_infinite_tap(*weight)
    function = reference.loaded.reference_fn
    without, zeros = (by_taps(function, weight, multiplies=multiplies) for multiplies in (False, True))
    output = torch.where(zeros.isnan() & ~without.isnan(), 7.0, without)
    assert said_of(reference, tmp_path, weight, output, derived=True).violation


def masked(query, key, value):
    hidden = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).triu(1)
    scores = (query @ key.transpose(-1, -2)).masked_fill(hidden, -torch.inf)
    return torch.softmax(scores, -1) @ value


def added(query, key, value):
    mask = torch.zeros(query.shape[-2], key.shape[-2], dtype=query.dtype).masked_fill(
        torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).triu(1), -torch.inf
    )
    return torch.einsum("bhqk,bhkd->bhqd", (query @ key.transpose(-1, -2) + mask).softmax(dim=-1), value)


def by_torch(query, key, value):
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=1.0)


def flattened(query, key, value):
    weights = torch.softmax(query @ key.transpose(-1, -2) + torch.full((6, 6), -torch.inf).triu(1), -1)
    return torch.bmm(weights.flatten(0, 1), value.flatten(0, 1)).view(value.shape)


ATTENTIONS = {"masked": masked, "added": added, "by torch": by_torch, "flattened": flattened}
MASKED = "torch.softmax((x @ x.mT).masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -torch.inf), -1) @ x"


def queries_keys_values(place=None, special=torch.inf, of="value"):
    torch.manual_seed(2)
    tensors = dict(zip(("query", "key", "value"), torch.randn(3, 2, 2, 6, 4).double()))
    if place is not None:
        tensors[of][0, 1, place, 2] = special
    return list(tensors.values())


@pytest.mark.parametrize("multiplies", [True, False])
@pytest.mark.parametrize("function", ATTENTIONS.values(), ids=ATTENTIONS)
def test_of_finite_values_both_products_are_the_attention(function, multiplies):
    values = queries_keys_values()
    with ByMaskedKeys(multiplies=multiplies) as mode:
        actual = function(*values)
    assert mode.replaced == 1
    torch.testing.assert_close(actual, function(*values), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("special", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("function", ATTENTIONS.values(), ids=ATTENTIONS)
def test_a_value_that_is_masked_leaves_open_what_does_not_see_it(function, special):
    values = queries_keys_values(3, special)
    (opened,) = open_elements(function, values)
    blind = torch.zeros(2, 2, 6, 4, dtype=torch.bool)
    blind[0, 1, :3, 2] = True  # queries before the key
    assert torch.equal(opened.places, blind)
    torch.testing.assert_close(opened.without[blind], function(*queries_keys_values())[blind])
    seeing = opened.without[0, 1, 3:, 2]
    assert bool((seeing.isnan() if special != special else seeing == special).all())


@pytest.mark.parametrize("function", [added, by_torch, masked])
def test_a_key_that_is_masked_leaves_open_only_a_score_that_the_mask_is_added_to(function):
    values = queries_keys_values(3, torch.inf, of="key")
    opened = open_elements(function, values)[0]
    assert (opened is None) == (function is not added)  # masked_fill overwrites the score


@pytest.mark.parametrize("skips", [True, False])
def test_a_kernel_may_skip_masked_keys_and_may_multiply_them(tmp_path, skips):
    reference, x = reference_of(tmp_path, MASKED), queries_keys_values(4)[2][0, 1]
    with ByMaskedKeys(multiplies=not skips):
        output = reference.loaded.reference_fn(x)
    assert bool(output[:4].isnan().any()) == (not skips)
    assert said_of(reference, tmp_path, x, output, derived=True).violation is None
    output[0] = 1.0
    assert said_of(reference, tmp_path, x, output, derived=True).violation is not None


FAR = "torch.softmax(-9.0 * torch.arange(12, dtype=x.dtype) + 0 * x[:, 0], -1) @ x"


@pytest.mark.parametrize(("key", "passes"), [(9, False), (10, True)])  # weights of e^-81, 7e-36, and e^-90, 8e-40
def test_a_weight_that_a_gpu_may_flush_gives_nan_of_an_infinite_value(tmp_path, key, passes):
    reference, x = reference_of(tmp_path, FAR), torch.randn(12, 3)
    x[key, 2] = torch.inf
    output = reference.loaded.reference_fn(x)
    assert output[2].isinf() and said_of(reference, tmp_path, x, output, derived=True).violation is None
    output[2] = torch.nan
    assert (said_of(reference, tmp_path, x, output, derived=True).violation is None) == passes


def test_products_that_no_softmax_comes_before_are_not_open():
    x = torch.zeros(4, 4).double()
    y = torch.full((4, 4), torch.inf).double()
    assert open_elements(lambda a, b: a @ b, [x, y]) == []
    assert open_elements(lambda a, b: torch.softmax(a, -1) @ b, [x, y]) == []


def gradients(query, key, value):
    """Of the sum of `masked` by query, key and value, from exponentials as a kernel keeps them."""
    hidden = torch.ones(6, 6, dtype=torch.bool).triu(1)
    scores = (query @ key.mT).masked_fill(hidden, -torch.inf)
    weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
    moved = torch.ones_like(query) @ value.mT
    scores_moved = weights * (moved - (weights * moved).sum(-1, keepdim=True))
    return scores_moved @ key, scores_moved.mT @ query, weights.mT @ torch.ones_like(query) * value


def test_gradients_skip_masked_keys_too():
    values = queries_keys_values()
    with ByMaskedKeys(multiplies=False) as mode:
        actual = gradients(*values)
    assert mode.replaced == 1
    torch.testing.assert_close(actual, gradients(*values), rtol=1e-12, atol=1e-12)
    by_query, _, by_value = open_elements(gradients, queries_keys_values(3))
    assert by_query.places[0, 1].any(-1).tolist() == [True] * 3 + [False] * 3, "queries that do not see the key"
    torch.testing.assert_close(by_query.without[0, 1, :3], actual[0][0, 1, :3])
    assert by_value is None  # the key's own weights are those of queries that see it


def test_signs_of_weights_count():
    weights, values = torch.tensor([[-1.0, 0.0], [0.0, 2.0]]), torch.tensor([[torch.inf], [torch.nan]])
    total = _without_zeros(torch.matmul, weights, values)
    assert total[0].item() == -torch.inf and total[1].isnan().item()


def test_infinities_of_the_inputs_are_no_masks():
    x, y = torch.zeros(4, 4).double(), torch.ones(4, 4).double()
    x[0, 0], y[0, 0] = -torch.inf, torch.inf
    assert open_elements(lambda a, b: a.exp() * b, [x, y]) == []
    image, weight = x.view(1, 1, 4, 4), torch.ones(1, 1, 3, 3).double()
    (opened,) = open_elements(
        lambda a, b, w: functional.conv2d(a, w, padding=1) + b, [image, -y.view(1, 1, 4, 4), weight]
    )
    assert opened is None  # what a convolution is added to is not a score


@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_inputs_of_eight_bits_are_asked_whether_they_are_finite(value):
    image, weight = torch.ones(1, 1, 4).to(torch.float8_e4m3fn), torch.ones(1, 1, 3).to(torch.float8_e4m3fn)
    image[0, 0, 0] = value

    def convolved(image, weight):
        return functional.conv1d(image.float(), weight.float(), padding=1)

    found = open_elements(convolved, [image, weight])
    assert (found == []) == (value == 1.0)
