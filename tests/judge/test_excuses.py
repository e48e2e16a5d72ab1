"""Where a result may be off by more: roundings of integers, sums that are small by luck, PyTorch right by luck."""

from __future__ import annotations

import math

import pytest
import torch

from cutesmith.judge.reference_side.allowances import MOST_WIDENED, _fits_widened, _nudged
from cutesmith.judge.reference_side.sensitivity import depends_on_luck, movements
from cutesmith.judge.reference_side.tolerance import tolerance_for
from cutesmith.verdicts import Excuse
from tests.judge.in_process import reference_of, said_of

ROUNDED = "(x * (1 / 3)).round().to(torch.int32)"  # a third is not a float32: near halves PyTorch rounds otherwise
COLUMNS = 1 << 17


@pytest.mark.parametrize(
    ("change", "places", "wrong"),
    [(1, 1, ""), (2, 1, "1 of 65536 elements differ"), (1, 60000, "60000 of 65536 elements differ")],
)
def test_one_step_is_forgiven_where_pytorch_is_right_by_luck_and_two_steps_or_many_are_not(
    tmp_path, change, places, wrong
):
    torch.manual_seed(0)
    values = torch.randint(-(2**22), 2**22, (256, 256)).float() * 3  # thirds of these are integers, never near a half
    reference = reference_of(tmp_path, ROUNDED)
    output = reference.loaded.reference_fn(values)
    output.view(-1)[:places] += change
    judged = said_of(reference, tmp_path, values, output)
    assert judged.violation is None if not wrong else wrong in judged.violation.text
    assert judged.outputs[0].excuse is (None if wrong else Excuse.INTEGERS)


def test_positions_are_no_roundings(tmp_path):
    torch.manual_seed(0)
    values = torch.randn(256, 256)
    output = values.argmax(-1)
    output[0] += 1
    violation = said_of(reference_of(tmp_path, "x.argmax(-1)"), tmp_path, values, output).violation
    assert "1 of 256 elements differ" in violation.text


def test_pytorch_being_right_by_luck_blames_no_kernel(tmp_path):
    reference = reference_of(tmp_path, "(x.float() + 100 - 100).mean()")
    values = torch.full((1,), 2.0**-17 * 9)  # a multiple of the spacing at 100: nothing is lost

    def judged(steps, derived):
        return said_of(reference, tmp_path, values, torch.tensor(2.0**-17 * steps), derived=derived)

    assert judged(20, False).violation and judged(20, True).violation
    for derived in (False, True):  # one step at 100 is one rounding of an intermediate result
        assert not judged(10, derived).violation and "ill-conditioned" in judged(10, derived).note
        (error,) = judged(10, derived).outputs
        assert error.excuse is Excuse.INPUTS and error.excused_error == 2.0**-17
        assert error.excused_allowed >= 2.0**-17 > error.atol + error.rtol * 2.0**-17 * 9


@pytest.fixture
def judged(tmp_path):
    """A function: what is said of `outputs` as the sums of rows of `values`."""
    reference = reference_of(tmp_path, "x.sum(-1)")
    return lambda values, outputs, **tolerance: said_of(reference, tmp_path, values, outputs, **tolerance)


def unlucky(rows):
    """Rows of normal numbers that come to about 0.01."""
    torch.manual_seed(3)
    values = torch.randn(rows, COLUMNS)
    values[:, -1] -= (values.double().sum(-1) - 0.01).float()
    return values


def in_float32(values):
    """Each of 512 threads adds its own, then they are added: every order of float32 additions is as good."""
    return sum(values.view(values.shape[0], -1, 512).unbind(1), torch.zeros(values.shape[0], 512)).sum(-1)


def test_a_float32_sum_that_is_small_by_luck_passes_and_says_why_but_not_by_a_tolerance_of_the_user(judged):
    values = unlucky(1)
    relative = (in_float32(values) - values.double().sum(-1)).abs() / values.double().sum(-1).abs()
    assert relative > 1.2e-4, "out of tolerance, were it not for its terms"
    verdict = judged(values, in_float32(values))
    assert verdict.violation is None and "roundings of the inputs to float32 move it" in verdict.note
    assert judged(values, in_float32(values), rtol=1e-5, atol=0.0).violation


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrower_sums_do_not(judged, dtype):
    values = unlucky(1)
    assert judged(values, values.to(dtype).float().sum(-1)).violation
    assert judged(values, values.double().sum(-1).float() + 2e-3).violation


@pytest.mark.slow
def test_of_many_outputs_the_magnitude_is_known(judged):
    values = unlucky(16)
    assert judged(values, in_float32(values)).violation
    assert not depends_on_luck(values.sum(-1), values.double().sum(-1), tolerance_for(torch.float32, None, None))


def shares(x):
    assert (x.sum(-1) == 1).all(), "no shares"
    return (x * torch.arange(4.0).to(x.dtype)).sum(-1)


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda x: x.floor().sum(-1), torch.full((1, 64), 3.0)),
        (lambda x: (x == 3).double().sum(-1), torch.full((1, 64), 3.0)),
        (lambda x: x.argmax(-1), torch.arange(64.0)[None]),
        (shares, torch.full((1, 4), 0.25)),
    ],
    ids=["jumps", "compares", "is a position", "refuses what is rounded"],
)
def test_roundings_of_the_inputs_excuse_nothing_where_a_result(function, values):
    assert movements(function, [values], [function(values.double())]) == [0.0]


def test_a_result_moves_as_much_as_its_terms_were_rounded():
    values = unlucky(1)
    (moved,) = movements(lambda x: x.sum(-1), [values], [values.double().sum(-1)])
    one_rounding = 2.0**-24 * float(values.double().square().sum().sqrt()) / 3**0.5
    assert 0.2 * one_rounding < moved < 4 * one_rounding


def standardized(values):
    """Rows without mean and with variance 1, in two passes over float32."""
    moved = values - in_float32(values).div(values.shape[-1]).unsqueeze(-1)
    return moved * (in_float32(moved.square()).div(values.shape[-1]).unsqueeze(-1) + 1e-5).rsqrt()


def variance(values):
    """That of each row, in two passes over float32."""
    return (values - values.mean(-1, keepdim=True)).square().sum(-1) / (values.shape[-1] - 1)


AT_1000 = 2.0**-14  # the spacing of float32


@pytest.mark.sampled(2)
@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize(("steps", "passes"), [(1, True), (16, False)])
def test_a_mean_may_be_a_rounding_off_at_a_large_offset_where_pytorch_has_the_right_one(tmp_path, side, steps, passes):
    reference, tried = reference_of(tmp_path, "x - x.mean()"), 0
    for seed in range(24):
        torch.manual_seed(seed)
        values = torch.randn(32, 512) + side * 1000
        if abs(values.mean() - values.double().mean()) < AT_1000 / 4:
            output, tried = values - (values.mean() + steps * AT_1000), tried + 1
            judged = said_of(reference, tmp_path, values, output, derived=True, strict=True)
            assert (judged.violation is None) == passes, (seed, judged.violation)
    assert tried > 2


@pytest.mark.parametrize(
    ("formula", "kernel"),
    [("torch.nn.functional.layer_norm(x, x.shape[-1:])", standardized), ("x.var(-1)", variance)],
    ids=["layer norm", "variance"],
)
def test_two_passes_in_float32_pass_there_whatever_the_draw(tmp_path, formula, kernel):
    reference = reference_of(tmp_path, formula)
    for seed in range(6):
        torch.manual_seed(seed)
        values = torch.randn(32, 512) + 1000
        judged = said_of(reference, tmp_path, values, kernel(values), derived=True, strict=True)
        assert judged.violation is None, (seed, judged.violation)


def test_a_wrong_result_of_an_expanded_input_is_told_as_one(tmp_path):
    values = (torch.randn(1, 512) + 1000).expand(32, 512)
    judged = said_of(reference_of(tmp_path, "x * 2"), tmp_path, values, values * 3, derived=True, strict=True)
    assert "out of tolerance" in judged.violation.text


def of_one_pass(x):
    return ((x * x).mean(-1) - x.mean(-1).square()) * (x.shape[-1] / (x.shape[-1] - 1))


WRONG_AT_AN_OFFSET = {
    "variance of one pass": ("x.var(-1)", of_one_pass),
    "layer norm of one pass": (
        "torch.nn.functional.layer_norm(x, x.shape[-1:])",
        lambda x: (x - x.mean(-1, keepdim=True)) * (of_one_pass(x).clamp(min=0) + 1e-5).rsqrt().unsqueeze(-1),
    ),
    "mean in bfloat16": ("x - x.mean()", lambda x: x - x.mean().bfloat16().float()),
    "mean in float16": ("x - x.mean()", lambda x: x - x.mean().half().float()),
    "mean of one element more": ("x - x.mean()", lambda x: x - x.sum() / (x.numel() + 1)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("formula", "kernel"), WRONG_AT_AN_OFFSET.values(), ids=WRONG_AT_AN_OFFSET)
def test_a_wrong_one_is_found_there_whatever_the_draw(tmp_path, formula, kernel):
    reference = reference_of(tmp_path, formula)
    for seed in range(4):
        torch.manual_seed(seed)
        values = torch.randn(32, 512) + 1000
        assert said_of(reference, tmp_path, values, kernel(values), derived=True, strict=True).violation, seed


@pytest.mark.parametrize(("steps", "passes"), [(1, True), (40, False)])
def test_single_elements_may_be_few_roundings_of_their_terms_off_in_any_draw(tmp_path, steps, passes):
    """An element that is what 0.5 and -0.50005 leave has their error, however small all results are."""
    reference = reference_of(tmp_path, "(x + 0.5).clamp(max=0.0)")
    for seed in range(4):
        torch.manual_seed(seed)
        values = torch.rand(10368) * 0.2 - 0.4
        values[77] = -0.5 - 5e-5
        output = (values + 0.5).clamp(max=0.0)
        output[77] += steps * 2.0**-24
        judged = said_of(reference, tmp_path, values, output, derived=True, strict=True)
        assert (judged.violation is None) == passes, (seed, judged.violation)


@pytest.mark.parametrize("by_one", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float8_e4m3fn])
def test_inputs_nearby_are_smaller_by_a_sixteenth_at_most_in_every_type(dtype, by_one):
    values = torch.full((8, 64), 64.0).to(dtype)
    nearby = _nudged(values, by_one=by_one)
    assert nearby.dtype == dtype and nearby.shape == values.shape
    assert 60 <= float(nearby.double().min()) <= float(nearby.double().max()) <= 64
    assert bool((values.float() == 64).all())


def test_a_cpu_widens_no_tensors_beyond_its_limit_and_of_a_gpu_nothing_is_known_without_one():
    few, many = torch.zeros(1).expand(MOST_WIDENED), torch.zeros(1).expand(MOST_WIDENED + 1)
    assert _fits_widened([few, 3, None]) and _fits_widened([])
    assert not _fits_widened([few, many])


@pytest.mark.gpu
def test_a_gpu_with_room_widens_larger_tensors():
    many = torch.zeros(1, device="cuda").expand(MOST_WIDENED + 1)
    assert _fits_widened([many]) and not _fits_widened([many.expand(1 << 20, MOST_WIDENED + 1)])


@pytest.mark.slow
def test_a_mean_of_what_a_norm_gives_is_noise_of_any_float32_order_but_no_number(tmp_path):
    """KernelBench's level 2, problem 23: 1.6e-17 in float64, 3e-9 in PyTorch, 2.6e-8 in a kernel that is right."""
    reference = reference_of(tmp_path, "torch.nn.functional.group_norm(x, 4).mean((1, 2, 3))")
    for seed in range(4):
        torch.manual_seed(seed)
        values = torch.randn(2, 16, 24, 24)
        off = values + 6e-8  # a rounding of the mean of each group
        noise = (off - values.view(2, 4, -1).mean(-1).repeat_interleave(4, 1)[..., None, None]).mean((1, 2, 3))
        assert said_of(reference, tmp_path, values, noise, derived=False, strict=True).violation is None, seed
        for wrong in (noise + 1e-5, torch.zeros(2) + 1e-3):
            assert said_of(reference, tmp_path, values, wrong, derived=False, strict=True).violation, seed
        kernelbench = {"rtol": 1e-4, "atol": 1e-4}
        assert said_of(reference, tmp_path, values, noise, strict=True, **kernelbench).violation is None, seed
        assert said_of(reference, tmp_path, values, noise + 1e-5, strict=True, **kernelbench).violation, seed


def test_the_sign_of_an_infinite_product_is_open_where_roundings_decide_it(tmp_path):
    """A scale of Inf times the sum of a block: two of 59 million signs differed on an H100 (8-bit sums are short)."""
    reference = reference_of(tmp_path, "x[1:].sum(0) * x[0]")
    values = torch.randn(65, 8)
    values[0, 3:5] = math.inf
    values[1:, 3] = torch.cat((torch.randn(31), torch.randn(1) * 0, torch.zeros(32)))
    values[33:, 3] = -values[1:33, 3]
    values[33, 3] += 2.0**-23
    output = values[1:].sum(0) * values[0]
    for place, passes in ((3, True), (4, False)):
        wrong = output.clone()
        wrong[place] = -torch.sign(values[1:, place].double().sum()) * math.inf
        judged = said_of(reference, tmp_path, values, wrong, derived=True, strict=True)
        assert (judged.violation is None) == passes, judged.violation
        assert not passes or "few roundings make Inf" in judged.note


def test_the_place_of_the_best_rounding_is_open_and_that_of_a_smaller_number_is_not(tmp_path):
    """Cosines of vectors with themselves are 1; seed 11806 of the study of random graphs."""
    torch.manual_seed(0)
    values = torch.randn(64, 4, 5)
    values[:, 3, 1:] = 0.0  # its cosine with ones is smaller
    reference = reference_of(tmp_path, "torch.cosine_similarity(x, torch.where(x == 0, 1.0, x), -1).argmax(-1)")
    places = torch.randint(3, (64,))
    judged = said_of(reference, tmp_path, values, places, derived=True)
    assert judged.violation is None
    places[7] = 3
    assert said_of(reference, tmp_path, values, places, derived=True).violation is not None


def test_which_of_equal_numbers_comes_first_is_not_open(tmp_path):
    torch.manual_seed(0)
    values = torch.randint(4, (64, 33)).float()
    reference = reference_of(tmp_path, "(x.softmax(-1) / 3).argmax(-1)")
    last = 32 - values.flip(-1).argmax(-1)
    assert said_of(reference, tmp_path, values, last, derived=True).violation is not None
