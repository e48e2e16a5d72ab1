"""Which results pass: one rounding of a float32 accumulation does, sloppy arithmetic does not."""

import math
from dataclasses import replace

import pytest
import torch

from cutesmith.judge.reference_side.comparison import compare, native_excess, reference_scale
from cutesmith.judge.reference_side.tolerance import tolerance_for
from cutesmith.judge.reference_side.totals import unit_in_last_place
from cutesmith.verdicts import Excuse


def judge(actual, exact, native=None, rtol=None, atol=None, derived=False):
    native = exact.to(actual.dtype) if native is None else native
    return compare(0, actual, native, exact, replace(tolerance_for(actual.dtype, rtol, atol), derived=derived))


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_float32_softmax_rounded_once_passes(dtype):
    x = torch.randn(64, 4096).to(dtype)
    exact = torch.softmax(x.double(), -1)
    comparison = judge(torch.softmax(x.float(), -1).to(dtype), exact)
    assert not comparison.violation
    assert comparison.error.max_ulp < (1 if dtype is not torch.float32 else 32)


def test_what_excuses_an_error_beyond_the_stated_tolerance_is_told_with_what_it_allows():
    exact = torch.linspace(1, 2, 64).double()
    off = exact.float() + 3e-4
    assert judge(exact.float(), exact).error.excuse is None
    excused = judge(off, exact, native=exact.float() + 2e-4).error
    assert excused.excuse is Excuse.PYTORCH
    assert excused.atol + excused.rtol < excused.excused_error == excused.max_abs < excused.excused_allowed
    assert judge(off, exact).violation and judge(off, exact).error.excuse is None
    rounded = judge(torch.nextafter(exact.float(), torch.tensor(3.0)), exact, rtol=0.0, atol=0.0).error
    assert rounded.excuse is Excuse.LAST_PLACE and rounded.excused_allowed == 2.0**-22  # at 2
    noise = judge(off, exact, native=torch.randn(64), derived=True)
    assert (noise.error.excuse, noise.error.excused_allowed) == (Excuse.NO_DIGIT, "inf") and not noise.decided


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_accumulating_in_the_output_type_fails(dtype):
    x = torch.rand(32, 4096).to(dtype)
    total = torch.zeros(32, dtype=dtype)
    for column in x.unbind(1):
        total += column
    assert "output 0" in judge(total, x.double().sum(1)).violation.text


def many_numbers():
    x = torch.randn(8, 262144)
    return x.view(8, 1024, 256).sum(1).sum(1), x.double().sum(1), x.sum(1)


def sums_one_unit_apart():
    """All within a unit in the last place, so that they may come out as one number; PyTorch adds in another order."""
    exact = 1_025_024.5 + 0.01 * torch.rand(64, dtype=torch.float64)
    return torch.full((64,), 1_025_024.5), exact, exact.float() + 0.0625 * (torch.arange(64) == 0)


RIGHT = {
    "a float32 sum of many numbers": many_numbers,
    "one number for sums that differ by less than a unit": sums_one_unit_apart,
    "a constant where the reference is one": lambda: (torch.full((9,), 2.0), torch.full((9,), 2.0).double()),
    "infinity where the type ends": lambda: (torch.tensor([torch.inf, 1.0]).half(), torch.tensor([1e6, 1.0]).double()),
    "flushed subnormals": lambda: (torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1e-40], dtype=torch.float64)),
    "nothing for nothing": lambda: (torch.empty(0, 3), torch.empty(0, 3, dtype=torch.float64)),
}


@pytest.mark.parametrize("sides", RIGHT.values(), ids=RIGHT)
def test_right_is(sides):
    assert judge(*sides()).violation is None


def test_tensor_float_32_is_not_float32():
    a, b = torch.randn(64, 512), torch.randn(512, 64)
    short = lambda t: (t.view(torch.int32) & -8192).view(torch.float32)
    assert judge(short(a) @ short(b), a.double() @ b.double(), native=a @ b).violation


def test_noise_all_over_is_sloppy_though_each_element_is_close():
    exact = torch.randn(100_000, dtype=torch.float64)
    comparison = judge((exact * (1 + 6e-5 * torch.randn(100_000).sign())).float(), exact)
    assert comparison.violation.rule == "O9"
    assert comparison.error.mismatches == 0


def test_one_wrong_element_is_named():
    exact = torch.randn(7, 11, dtype=torch.float64)
    actual = exact.float()
    actual[3, 5] += 1
    comparison = judge(actual, exact)
    assert comparison.error.mismatches == 1
    assert comparison.error.worst_index == (3, 5)
    assert "[3, 5]" in comparison.violation.text


def test_zeros_do_not_pass_an_absolute_tolerance():
    exact = torch.rand(1000, dtype=torch.float64) * 1e-5
    comparison = judge(torch.zeros(1000), exact, atol=1e-3, rtol=1e-3)
    assert comparison.violation.rule == "O3"


def test_a_constant_that_passes_is_rejected():
    exact = 1 + 1e-5 * torch.randn(1000, dtype=torch.float64)
    comparison = judge(torch.ones(1000), exact)
    assert (comparison.violation.rule, comparison.violation.reject) == ("O3", True)


def test_an_8_bit_result_is_held_against_an_8_bit_reference():
    exact = torch.linspace(-4, 4, 33).to(torch.float8_e4m3fn)
    assert native_excess(exact, exact, tolerance_for(exact.dtype, None, None)) == 0


def test_nan_and_inf_must_stand_where_the_reference_has_them():
    exact = torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), 2.0], dtype=torch.float64)
    assert not judge(exact.float(), exact).violation
    extra = exact.float().index_fill(0, torch.tensor([0]), float("nan"))
    assert judge(extra, exact).violation.rule == "O6"
    assert judge(exact.float().nan_to_num(), exact).violation
    assert judge(exact.float().abs(), exact).violation


def test_where_pytorch_overflows_inside_a_special_value_or_the_exact_one_passes():
    exact = torch.randn(64, 64, dtype=torch.float64)
    native = exact.half()
    native[3, 5] = torch.nan
    near = (exact * (1 + 2.0**-11)).half()  # not the correctly rounded result, but within tolerance
    assert not judge(near, exact, native).violation
    assert not judge(native.clone(), exact, native).violation
    wrong, infinite = near.clone(), near.clone()
    wrong[3, 5], infinite[3, 5] = 2 * wrong[3, 5] + 1, torch.inf
    assert judge(wrong, exact, native).error.mismatches == 1
    assert not judge(infinite, exact, native).violation
    infinite[3, 6] = torch.inf
    assert "1 of 4096 elements are NaN or Inf not where" in judge(infinite, exact, native).violation.text


def test_a_fused_multiply_add_is_infinite_where_the_difference_of_products_is_nan():
    """Seen on an H100 in 1 of 1310720 sums of a step of Mamba: the exact sum is finite, neither other one is."""
    first, second = (torch.tensor([2e19, far], dtype=torch.float64) for far in (1e20, 1.01e20))
    exact = first.prod() - second.prod()
    native = first.float().prod() - second.float().prod()
    fused = first.float().prod() + (-second.float().double().prod())  # the product is not rounded to float32
    assert (native.isnan(), fused.isposinf(), exact.isfinite()) == (True, True, True)
    assert not judge(fused.float().view(1), exact.view(1), native.view(1)).violation
    for result, wrong in ((torch.inf, -torch.inf), (torch.inf, torch.nan)):
        beyond, own = torch.tensor([1e39], dtype=torch.float64), torch.tensor([result])
        assert judge(torch.tensor([wrong]), beyond, own).violation


def test_where_the_exact_result_overflows_pytorch_s_finite_one_passes():
    exact, native = torch.tensor([65525.0, 1.0], dtype=torch.float64), torch.tensor([65504.0, 1.0]).half()
    for value, right in ((65504.0, True), (torch.inf, True), (-torch.inf, False), (1.0, False), (torch.nan, False)):
        assert (not judge(torch.tensor([value, 1.0]).half(), exact, native).violation) == right, value


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_within_tolerance_of_the_largest_number_it_and_infinity_pass(dtype):
    largest = torch.tensor(torch.finfo(dtype).max, dtype=torch.float64)
    tolerance = tolerance_for(dtype, None, None)
    near = tolerance.rms / 2
    for exact in (largest * (1 + near), largest * (1 - near)):
        for value in (largest, torch.tensor(math.inf)):
            assert not judge(torch.stack([value, -value]).to(dtype), torch.stack([exact, -exact])).violation
    far = torch.stack([largest * (1 - 8 * tolerance.rtol), largest])
    assert "Inf" in judge(torch.tensor([math.inf, math.inf], dtype=dtype), far).violation.text
    opposite = torch.tensor([math.inf, -math.inf], dtype=dtype)
    assert judge(opposite, torch.stack([largest, largest])).violation


def test_truncation_is_within_one_unit_in_the_last_place():
    exact = torch.rand(1000).double() + 1
    truncated = (exact.float().view(torch.int32) & -65536).view(torch.float32).bfloat16()
    assert judge(truncated, exact, rtol=0.0, atol=0.0).error.max_ulp > 0.9
    assert not judge(truncated, exact, rtol=0.0, atol=0.0).violation
    assert judge(truncated - 2**-7, exact, rtol=0.0, atol=0.0).violation


def test_an_ill_conditioned_reference_excuses_what_pytorch_does_too():
    x = torch.randn(64, 256).double() + 3e4
    exact = x - x.mean(1, keepdim=True)
    rounded = x.float()
    native = rounded - rounded.mean(1, keepdim=True)
    other = rounded - rounded.flip(1).mean(1, keepdim=True)
    assert (native - exact).abs().max() > 2e-4
    assert not judge(other, exact, native=native, rtol=1e-3, atol=1e-3).violation


def test_derived_inputs_that_pytorch_gets_wrong_excuse_four_times_its_error():
    exact, native = torch.tensor([5.0e-8], dtype=torch.float64), torch.tensor([5.5e-8])
    off = exact.float() + 3 * (native - exact).float()
    assert judge(off, exact, native).violation
    allowed = judge(off, exact, native, derived=True)
    assert not allowed.violation
    assert allowed.note.startswith("output 0: ill-conditioned: PyTorch's own error is 0.05 of the reference")
    assert judge(exact.float() + 5 * (native - exact).float(), exact, native, derived=True).violation


@pytest.mark.parametrize("native", [0.0, 0.21])
def test_derived_inputs_of_which_pytorch_gets_no_digit_right_judge_no_number(native):
    """A divergence of probabilities plus 1000: PyTorch answers 0 instead of 0.053, with other logarithms it is 1.09."""
    exact, native = torch.tensor(0.0532, dtype=torch.float64), torch.tensor(native)
    other = torch.tensor(1.0878)
    assert judge(other, exact, native).violation
    allowed = judge(other, exact, native, derived=True)
    assert not allowed.violation and "no digit of PyTorch's own result is right" in allowed.note
    assert judge(torch.tensor(math.nan), exact, native, derived=True).violation.rule == "O6"


def test_one_cancelled_element_does_not_excuse_the_others():
    exact, native = torch.ones(64, dtype=torch.float64), torch.ones(64)
    native[3] = 1.5
    assert judge(torch.full((64,), 4.0), exact, native, derived=True).violation


def test_derived_inputs_that_pytorch_gets_right_excuse_nothing():
    exact = torch.randn(1000, dtype=torch.float64)
    assert judge(exact.float() * 1.01, exact, derived=True).violation
    assert not judge(exact.float(), exact, derived=True).note


def test_integers_must_be_equal():
    exact = torch.arange(100)
    assert not judge(exact.clone(), exact).violation
    assert "1 of 100" in judge(exact.index_fill(0, torch.tensor([7]), 0), exact).violation.text


def test_integers_may_be_off_by_one_where_rounding_is_at_stake():
    exact = torch.arange(100)
    native, actual = (exact.index_fill(0, torch.tensor([place]), place + 1) for place in (7, 9))
    assert not judge(actual, exact, native).violation
    far = exact.index_fill(0, torch.tensor([9]), 12)
    assert judge(far, exact, native).violation


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_units_are_the_spacing_of_the_type(dtype):
    values = torch.tensor([1.0, 1.5, 2.0, 100.0, 0.1]).to(dtype)
    following = torch.nextafter(values, torch.full_like(values, float("inf")))
    expected = following.double() - values.double()
    assert torch.equal(unit_in_last_place(values.double(), dtype), expected)


def test_an_outlier_does_not_set_the_scale():
    values = torch.ones(1000, dtype=torch.float64)
    values[0] = 1e9
    assert reference_scale(values, capped=False) == 32
    assert reference_scale(values, capped=True) == 1


def test_one_value_everywhere_is_right_where_only_pytorchs_rounding_varies():
    """A layer norm of rows of one element is 0; in bfloat16 PyTorch leaves noise there."""
    actual, noise = torch.zeros(64, 1, dtype=torch.bfloat16), torch.full((64, 1), 1.3e-5, dtype=torch.bfloat16)
    noise[3] = 0
    assert judge(actual, torch.zeros(64, 1, dtype=torch.float64), native=noise).violation is None
    varying = torch.linspace(1e-6, 2e-6, 64, dtype=torch.float64).reshape(64, 1)
    assert judge(actual, varying).violation.rule == "O3"


def test_numbers_that_gpus_flush_may_be_zero():
    """KernelBench's 20th problem of level 3 gives 1e-45 for small images; 1e-6 of float16 does not count as such."""
    exact = torch.linspace(1e-42, 1e-40, 64, dtype=torch.float64)
    assert judge(torch.zeros(64), exact).violation is None
    assert judge(torch.zeros(64), exact * 1e5).violation.rule == "O3"
    assert judge(torch.zeros(64, dtype=torch.float16), exact * 1e35).violation.rule == "O3"
    assert judge(torch.zeros(64, dtype=torch.float64), exact, atol=1e-3).violation.rule == "O3"


def test_means_of_norms_are_noise_and_may_be_one_number():
    """KernelBench's 23rd problem of level 2: the mean of what a group norm gives, for each image."""
    torch.manual_seed(0)
    images = torch.randn(4, 512)
    centred = images.double() - images.double().mean(1, keepdim=True)
    exact, native = (centred / 3).mean(1), ((images - images.mean(1, keepdim=True)) / 3).mean(1)
    assert len(set(exact.tolist())) > 1 and len(set(native.tolist())) > 1
    constant, varying = torch.full((4,), -1.8e-8), torch.linspace(0, 1e-6, 4, dtype=torch.float64)
    moves = replace(tolerance_for(torch.float32, None, None), moved=1e-5)  # as roundings move what is small by luck
    assert compare(0, constant, native, exact, moves).violation is None
    assert compare(0, constant, native + varying.float(), varying, moves).violation.rule == "O3"


def test_each_part_of_a_long_result_is_judged_by_its_own_room():
    """A result is compared part by part: what is wrong in a later one has its own place, and its own room."""
    exact = torch.randn(300, 1000).double()
    wrong = exact.float()
    wrong[250, 7], wrong[299, 999] = 5000.0, -50.0
    assert "2 of 300000 elements" in (found := judge(wrong, exact).violation.text)
    assert "worst at [250, 7]" in found
    rooms = torch.zeros(300_000, dtype=torch.float64)
    rooms[250_007] = 10_000.0
    excused = replace(tolerance_for(torch.float32, None, None), room=rooms)
    assert "1 of 300000 elements" in compare(0, wrong, exact.float(), exact, excused).violation.text
    rooms[299_999] = 100.0
    assert not compare(0, wrong, exact.float(), exact, excused).violation


def test_where_both_references_are_special_and_not_the_same_any_special_value_passes_that_nan_does_not_decide():
    """Six elements of a selective scan on an H100: NaN in float64, Inf in float32, where products overflow."""
    exact, native = torch.tensor([math.nan, 1.0], dtype=torch.float64), torch.tensor([math.inf, 1.0])
    for value, right in ((-math.inf, True), (math.nan, True), (3.0, False)):
        actual, tolerance = torch.tensor([value, 1.0]), tolerance_for(torch.float32, None, None)
        loose = compare(0, actual, native, exact, replace(tolerance, nan_decides=False))
        assert (loose.violation is None) is right, value
    assert compare(0, torch.tensor([-math.inf, 1.0]), native, exact, tolerance).violation is not None


@pytest.mark.parametrize(("finite", "told"), [(0, True), (1, False)])
def test_a_reference_that_is_infinite_everywhere_is_told(finite, told):
    """Such a case compares nothing: `float16` of values beyond 65504."""
    exact = torch.full((64,), 1e6, dtype=torch.float64)
    exact[:finite] = 2.0
    comparison = judge(exact.half(), exact)
    assert not comparison.violation
    assert ("the reference is Inf or NaN everywhere" in comparison.note) == told


def quantised(amplitude=160.0):
    """Values that a quantiser makes float8 of, their exact ones, and which are small beside the largest."""
    exact = amplitude * torch.randn(64, 256, dtype=torch.float64)
    exact[:, ::8] *= 2.0**-7
    return exact, exact.abs() < 2


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_small_numbers_of_a_float8_result_count_beside_large_ones(dtype):
    exact, small = quantised()
    right = exact.to(dtype)
    assert not judge(right, exact, right).violation
    for wrong in (right.float() * 2, right.float() + 1, -right.float()):
        output = torch.where(small, wrong, right.float()).to(dtype)
        assert judge(output, exact, right).error.mismatches > int(small.sum()) // 2


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_a_float8_result_may_be_rounded_twice_or_down(dtype):
    """By way of bfloat16, and as a conversion that cuts off: the neighbour at most."""
    exact, _ = quantised(amplitude=20.0)
    right = exact.to(dtype)
    assert not judge(exact.bfloat16().to(dtype), exact, right).violation
    unit = unit_in_last_place(exact.abs(), dtype)
    down = exact.sign() * (exact.abs() / unit).floor() * unit
    assert not judge(down.to(dtype), exact, right).error.mismatches
    assert judge((down - 2 * exact.sign() * unit).to(dtype), exact, right).error.mismatches > exact.numel() // 2


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_numbers_a_thousandth_of_the_magnitude_count_in_float8(dtype):
    exact, _ = quantised(amplitude=20.0)
    exact[:, ::8] = 0.02 * exact[:, ::8].sign()
    right = exact.to(dtype).float()
    assert not judge(right.to(dtype), exact, right.to(dtype)).violation
    wrong = torch.where(exact.abs() < 0.03, -right, right).to(dtype)
    assert judge(wrong, exact, right.to(dtype)).error.mismatches >= 64 * 32


def test_what_a_conversion_to_float8_saturates_is_the_largest_number():
    exact = torch.tensor([3.0, 500.0, -1e5, 2.0**-9], dtype=torch.float64).repeat(16)
    right = exact.to(torch.float8_e4m3fn)
    assert right.float().max() == 448 and not judge(right, exact, right).violation
    half = torch.where(exact == 500, 224.0, right.float()).to(right.dtype)
    assert judge(half, exact, right).error.mismatches == 16
