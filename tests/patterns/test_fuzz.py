"""Random compositions of operations by seed, and single operations where PyTorch's result is easily missed."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from cutesmith.judge.reference_side.precision import WidenCasts, in_float64
from evals.studies.fuzz.cases import Case, make_case
from evals.studies.fuzz.checks import check
from evals.studies.fuzz.comparison import RoundedWeights, differences
from evals.studies.fuzz.families import FAMILIES

SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 1e-30, 1e30, -1e30, 3.0, -3.0, 2.5])
PAIRS = (SPECIAL.repeat(13, 1), SPECIAL[:, None].expand(13, 13).contiguous())
MIDDLES = ((torch.arange(36.0) * 7 % 37).view(4, 9), (torch.arange(36) * 5 % 37).view(4, 9))
MIDDLES[0][1, 3] = MIDDLES[0][1, 5] = math.nan
BYTES = torch.arange(256, dtype=torch.uint8)
WHOLE = (torch.arange(7 * 33).view(7, 33) * 37 % 101 - 50, torch.arange(7 * 33).view(7, 33) * 29 % 11 - 5)
WHOLE[1][WHOLE[1] == 0] = 3

OPERATIONS = {
    "norm of a number": ("x.norm()", (torch.tensor(-1.5),)),
    "count of a number": ("torch.count_nonzero(x)", (torch.tensor(-1.5),)),
    "a number backwards": ("x.flip(-1) * 2 + x.flip(0)", (torch.tensor(-1.5),)),
    "variance of a number": ("x.var(correction=0) + x", (torch.tensor(-1.5),)),
    "softmax of a number": ("x.softmax(-1) * x", (torch.tensor(-1.5),)),
    "variance of one element": ("torch.copysign(x.abs(), x.var(1, correction=0))", (torch.tensor([[-1.5], [2.5]]),)),
    "a number beside a product": (
        "(lambda v, w: ((1 / w).reshape(-1, 1), v[0], torch.atan2(1 / w, v)))"
        "(F.gelu(x.sqrt().flip(-1)), F.linear(x.sqrt().flip(-1), y, z))",
        (torch.randn(1).abs(), torch.randn(8, 1), torch.randn(8)),
    ),
    "quotient rounded down": ("x // y", PAIRS),
    "quotient rounded down in float64": ("x // y", tuple(value.double() for value in PAIRS)),
    "step at NaN": ("torch.heaviside(x, y)", PAIRS),
    "remainder by itself": ("x % x", (SPECIAL,)),
    "product with a logarithm": ("torch.special.xlog1py(x, y)", PAIRS),
    "product with the logarithm of 0": ("torch.xlogy(x, y)", PAIRS),
    "truth of a quotient less its dividend": (
        "((x * y) / y - x).bool().half()",
        ((torch.arange(2000.0) * 7 % 97 + 1).half(), (torch.arange(2000.0) * 3 % 13 + 1).half()),
    ),
    "angle": ("torch.angle(x)", (SPECIAL,)),
    "remainder by a number that wraps": ("x % -3", (BYTES,)),
    "quotient by a number that wraps": ("x // -3", (BYTES,)),
    "place of a number": ("x.sum().argmin(0), x * 2", (torch.arange(6.0),)),
    "truths of columns without elements": ("(x @ x.mT).any(0), x * 2", (torch.empty(0, 7),)),
    "image with ones in front that no input has": (
        "F.interpolate((x * y).unsqueeze(0), scale_factor=2.0, mode='nearest')",
        (torch.randn(3, 1, 5), torch.randn(1, 4, 1)),
    ),
    "lines with ones in front that no input has": (
        "(x * y).unsqueeze(0).cumsum(-1)",
        (torch.randn(3, 1, 5), torch.randn(1, 4, 1)),
    ),
    "one number in its place": ("torch.take_along_dim(x, y, 0) * 2", (torch.tensor([1.5]), torch.tensor([0]))),
    "columns without elements": ("x.sum(0)", (torch.empty(0, 64),)),
    "images moved behind their positions, then rolled": (
        "F.conv1d(x, y, None, stride=3, groups=2).movedim(0, -1).roll(1, -1)",
        (torch.randn(1, 2, 17), torch.randn(2, 1, 7)),
    ),
    "one channel whose taps do not fill a vector": (
        "F.conv1d(x, y)",
        (torch.randn(3, 1, 16).bfloat16(), torch.randn(1, 1, 7).bfloat16().expand(2, 1, 7)),
    ),
    "the k-th number": ("*x.kthvalue(5), *y.kthvalue(2, 0)", MIDDLES),
    "means of what a total of another shape scales": (
        "F.group_norm(x * y.sum(), 1)",
        (torch.randn(1, 5), torch.randn(7, 1)),
    ),
    "extreme of truths": ("(x > 0).max(-1).values", (PAIRS[0],)),
    "rows of a vector beside the same vector upright": ("(x + x.unsqueeze(-1)).softmax(1)", (torch.randn(31),)),
    "an image beside its windows": ("F.avg_pool1d(x, 3, 1, 1) - x", (torch.randn(2, 3, 9),)),
    "what a scatter reads in its place and elsewhere": (
        "x.scatter_add(0, y, x.roll(1, -1) * x)",
        (torch.randn(5, 33), torch.arange(5 * 33).view(5, 33) * 7 % 5),
    ),
    "extremes of narrow numbers where no index points": (
        "x.scatter_reduce(0, y, x.neg(), 'amax') * x, x.scatter_reduce(0, y, x.neg(), 'amin') * x",
        (torch.arange(31, dtype=torch.int16) - 9, torch.arange(31) % 4),
    ),
    "mean of a number along a column of one": (
        "(x.sum((0, -1), keepdim=True)**-1).unflatten(-1, (1, -1)).mean()",
        (torch.rand(8, 100),),
    ),
    "a norm that is clamped in place and stepped": (
        "F.cosine_similarity(x.exp(), x.exp(), dim=-1).ceil()",
        (torch.tensor(2.54).bfloat16(),),
    ),
    "quotients of rows that end within a vector": ("(x // y).sum(1), (x % y).cumsum(1)", WHOLE),
}
SPECIAL_IMAGES = SPECIAL.repeat(20)[:240].clone().view(2, 3, 5, 8).clamp(-1e15, 1e15)
ODD_INPUTS = {
    "both factors stretched": (
        "x.expand(2, 3, 5).log_softmax(0) @ x.expand(2, 3, 5).log_softmax(0).mT",
        (torch.randn(3, 5),),
    ),
    "one tensor in three places of a product": ("(x @ x + x).relu()", (torch.randn(16, 16),)),
    "number in the middle": ("*x.median(-1), *y.median(0, keepdim=True), x.median(), y.median()", MIDDLES),
    "one tensor as both factors of a product": (
        "x @ x.mT, x.amax()",
        (torch.randn(16, 8).mT,),
    ),
    "rows that overlap": ("x.relu() + x.sum(-1, keepdim=True)", (torch.randn(200).as_strided((64, 100), (1, 1)),)),
    "images that overlap": ("F.max_pool2d(x, 2)", (torch.randn(64).as_strided((2, 3, 6, 8), (4, 3, 2, 1)),)),
    "a product of rows that overlap": ("x @ x.mT", (torch.randn(200).as_strided((32, 64), (2, 1)),)),
    "read backwards": ("x.flip(-1).softmax(-1).flip(0)", (torch.randn(7, 100),)),
    "special numbers in a product": ("x @ y", PAIRS),
    "special numbers in a convolution": ("F.conv2d(x, y, padding=1)", (SPECIAL_IMAGES, torch.ones(4, 3, 3, 3))),
    "special numbers in windows": ("F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2)", (SPECIAL_IMAGES,)),
    "special numbers in a scan": ("x.cumsum(-1), x.cummax(0).values, y.logcumsumexp(0)", PAIRS),
    "special numbers sorted": ("x.sort(dim=-1, stable=True).values, y.topk(3, 0).values", PAIRS),
    "special numbers in attention": (
        "F.scaled_dot_product_attention(x, y, y)",
        (SPECIAL_IMAGES, torch.randn(2, 3, 9, 8)),
    ),
    "no images": ("F.conv1d(x, y, z) + 1", (torch.empty(0, 2, 9), torch.randn(4, 2, 3), torch.randn(4))),
    "no keys": ("x.softmax(-1), x.sum(-1)", (torch.empty(3, 0),)),
    "no rows of many": ("x.softmax(-1), x.cumsum(0), x.sort(-1).values", (torch.empty(0, 64),)),
}
FUNCTIONS = {
    "places of dimensions after the first": (
        "a, b = x.clone(), x.clone(); a[:, y, :, z] = x[:1, 0, :, 0]; b[:, :, y[:2]] += 1.5; "
        "return a, b, x[:, y, :, z], x[y[:2], :, z[:2]]",
        (torch.randn(5, 5, 6, 7), torch.tensor([1, 4, -2]), torch.tensor([0, 3, 2])),
    ),
    "lists of places": (
        "x = x.clone(); x[x < x[:, [-1]]] = 0; return x[[1, -1], :], x[:, [2, 0, 1]]",
        (torch.randn(3, 9),),
    ),
    "small determinants and inverses": (
        "return torch.linalg.inv(x), torch.inverse(x[..., 1:, 1:]), torch.det(x)",
        (torch.rand(5, 3, 3) + 3 * torch.eye(3),),
    ),
    "distances": (
        "return torch.cdist(x, y), torch.cdist(x, x[:3], p=1.0)",
        (torch.randn(2, 9, 5), torch.randn(2, 7, 5)),
    ),
    "grids of integers": (
        "return torch.fake_quantize_per_tensor_affine(x, 0.1, 10, 0, 255), F.rrelu(x)",
        (torch.randn(9, 33),),
    ),
    "each row's class is its number": (
        "return F.cross_entropy(x, torch.arange(x.shape[0], device=x.device))",
        (torch.randn(33, 33),),
    ),
    "quantiles and covariances": (
        "q = torch.quantile(x, y, dim=0), torch.quantile(x, 0.3, dim=-1, keepdim=True); "
        "return *q, torch.cov(x), torch.corrcoef(x)",
        (torch.randn(7, 33), torch.tensor([0.1, 0.5, 0.9])),
    ),
    "quantiles of all elements, and of one of two": (
        "modes = 'lower', 'higher', 'nearest', 'midpoint'\n"
        "    one = (torch.quantile(x, 0.3, dim=1, interpolation=mode) for mode in modes)\n"
        "    return *one, torch.quantile(x, 0.3), x.quantile(0.3, keepdim=True)",
        (torch.randn(7, 33),),
    ),
    "written back through a mask": (
        "m, z = y > 0, x.clone()\n"
        "    z[m] = torch.log1p(y[m]) - z[m] * 3\n    z[~m] += 2\n    z[:3][m[:3, 0]] *= 0.5\n    return z",
        (torch.randn(7, 33), torch.randn(7, 33)),
    ),
    "a column padded and split": (
        "z = x.clone(); z[x > 0] = 0\n    z = F.pad(z, (1, 2)).sign().chunk(2, -1)[0]\n"
        "    w = z.clone(); w.masked_fill_(z != 0, 3)\n    return z.t().narrow(-1, 0, 1), w",
        (torch.randint(-9, 9, (64, 1), dtype=torch.int32),),
    ),
    "deviations of single elements": (
        "z = x.softmax(0); return z.std(-1) * y, z.var(-1, correction=0), torch.var_mean(x, -1, correction=2)[0]",
        (torch.tensor([[0.3], [-2.0], [7.0], [torch.inf]]), torch.randn(4)),
    ),
    "grouped heads that are one": (
        "x = x.log_softmax(0)\n"
        "    return F.scaled_dot_product_attention(x, y.expand(2, 2, 1, 40), z.expand(2, 2, 1, 80), enable_gqa=True)",
        (torch.randn(2, 4, 1, 40), torch.randn(2, 1, 1, 40), torch.randn(2, 1, 1, 80)),
    ),
    "a product of batches without elements": (
        "return torch.einsum('...k,nk->...n', F.relu(x), y).max(3).values",
        (torch.randn(7, 3, 0, 64).half(), torch.randn(13, 64).half()),
    ),
    "the diagonal filled": ("y = x @ x.mT; y.fill_diagonal_(-1.0); return y.softmax(-1)", (torch.randn(9, 5),)),
    "windows that overlap, added up": (
        "y = torch.zeros(2, 40, device=x.device)\n"
        "    for i in range(8):\n        y[:, 4 * i : 4 * i + 12] += x[:, i]\n    return y",
        (torch.randn(2, 8, 12),),
    ),
    "an extreme of a number that the function makes": (
        "return torch.zeros(1, 1, device=x.device).amax(), x * 2",
        (torch.randn(5, 7),),
    ),
    "rows without elements beside a number of each": (
        "return x.bfloat16() > torch.count_nonzero((x > x) + 1, (-2, -1)), y * y",
        (torch.zeros(0, 64, dtype=torch.bool), torch.zeros(0, 1, dtype=torch.bool)),
    ),
    "a costly function of no elements and a part of it": (
        "z = y @ x / 3\n    return F.elu(torch.tanh(z)).narrow(-1, 0, 1), z.norm(p=1, dim=-1).flatten()",
        (torch.randn(13, 1, 3), torch.zeros(0, 1)),
    ),
    "rows of a product behind which others follow, and a loss of it": (
        "v = torch.einsum('mk,nk->nm', x, y); w = torch.rsqrt(v.abs() + 0.5); u = w.clone(); u[1:] = w[:-1]\n"
        "    return F.softplus(F.cross_entropy(v, z, reduction='none'))[None] @ y, u",
        (torch.randn(13, 8), torch.randn(129, 8), torch.arange(129) % 13),
    ),
    "folds of apart and overlapping taps": (
        "return F.fold(x, (7, 9), (3, 2), (2, 3), (1, 2), (2, 1))",
        (torch.randn(2, 12, 30),),
    ),
}
IMPORTS = "import torch\nimport torch.nn.functional as F\n"
SEEDS = range(50)


@pytest.mark.sampled(11)
@pytest.mark.parametrize("name", [*OPERATIONS, *(pytest.param(name, marks=pytest.mark.slow) for name in ODD_INPUTS)])
def test_an_operation_is_pytorch_s(name, tmp_path):
    code, inputs = {**OPERATIONS, **ODD_INPUTS}[name]
    source = f"{IMPORTS}def reference_fn({', '.join('xyz'[: len(inputs)])}):\n    return {code}\n"
    coarsest = inputs[0].dtype if inputs[0].is_floating_point() else torch.float64
    outcome = check(Case(0, source, inputs, coarsest), tmp_path)
    assert outcome.status == "held", outcome.reason


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_as_users_write_it_is_pytorch_s(name, tmp_path):
    body, inputs = FUNCTIONS[name]
    source = f"{IMPORTS}def reference_fn({', '.join('xyz'[: len(inputs)])}):\n    {body}\n"
    outcome = check(Case(0, source, inputs, torch.float32), tmp_path)
    assert outcome.status == "held", outcome.reason


def test_a_convolution_without_channels_is_refused(tmp_path):
    source = f"{IMPORTS}def reference_fn(x, y):\n    return F.conv1d(x, y)\n"
    outcome = check(Case(0, source, (torch.empty(2, 0, 9), torch.empty(4, 0, 3))), tmp_path)
    assert outcome.status == "refused" and "convolves images without channels" in outcome.reason


def test_a_seed_is_the_same_case_again():
    first, again = make_case(7), make_case(7)
    assert first.source == again.source
    torch.testing.assert_close(first.inputs, again.inputs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.slow
def test_cases_have_operations_of_every_family():
    assert Counter(family for seed in range(150) for family in make_case(seed).families).keys() == FAMILIES.keys()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_composition_is_refused_or_right(seed, tmp_path):
    outcome = check(make_case(seed), tmp_path)
    assert outcome.status in ("held", "refused"), outcome.reason


def test_a_wrong_result_is_found():
    """The comparison has teeth: a reference that differs from its own kernel by a thousandth is told."""
    x = torch.linspace(-1, 1, 64)
    assert "value" in differences(torch.sin, [x], [torch.sin(x) + 1e-3], torch.float32)
    assert "shape" in differences(torch.sum, [x], [x.sum().reshape(1)], torch.float32)
    assert differences(torch.sin, [x], [torch.sin(x)], torch.float32) == ""


def test_what_a_rounding_tips_is_judged_as_verify_does():
    """PyTorch rounds 37.0986 to float16 before it takes the fraction: both fractions are right, and no other."""
    x = torch.tensor([36, 36, 36, 25])

    def function(x):
        return torch.fmod(x.half().logsumexp(0), 1.0)

    for fraction, verdict in ((0.0986, True), (0.09375, True), (0.2, False)):
        assert (differences(function, [x], [torch.tensor(fraction).half()], torch.float16) == "") is verdict


def test_attention_may_round_its_weights_to_sixteen_bits_and_no_further():
    torch.manual_seed(0)
    inputs = [torch.randn(1, heads, 17, 32).bfloat16() for heads in (4, 2, 2)]
    mask = torch.rand(17, 17) < 0.5
    mask[3] = False

    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

    exact, *rounded = (
        in_float64(attention, inputs, casts)
        for casts in (
            WidenCasts,
            *(partial(RoundedWeights, kind, 1.0) for kind in (torch.bfloat16, torch.float8_e4m3fn)),
        )
    )
    assert exact[:, :, 3].eq(rounded[0][:, :, 3]).all() and 1e-5 < (exact - rounded[0]).abs().max() < 2.0**-7
    verdicts = [differences(lambda *t: 1 / attention(*t), inputs, [1 / o.bfloat16()], torch.bfloat16) for o in rounded]
    assert verdicts[0] == "" and "value" in verdicts[1]
