"""What a rendered section cannot reach goes, the rest computes the same; drafted files hold nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cutesmith.patterns.writing.inlining import inlined
from cutesmith.patterns.writing.pruning import prune
from tests.patterns.reach import unreached
from tests.patterns.running import drafted

TASKS = Path(__file__).parents[2] / "evals/tasks"
SECTION = '''\
import functools
import math, os
from typing import NamedTuple

# Why it is 1.
CLUSTER = 1
SHARED, UNREAD = 0, 7


class Plan(NamedTuple):
    """Two sizes."""

    rows: int
    unread: int  # goes
    columns: int

    @property
    def area(self):
        return self.rows * self.columns

    @property
    def unread_too(self):
        return 0


def uncalled():
    return helper(1, 2)

def helper(x, step, scale=1, *, name=""):
    return x * step * scale


def scaled(x, step=1, add=0):
    # The step.
    return add + x * step


def kernel_fn(x):
    if CLUSTER > 1 and x:
        x = -x
    elif SHARED:
        x = uncalled()
    elif x > 3 and CLUSTER == 1:
        # kept
        x = x + 1
    elif CLUSTER == 1:
        x = x + 2  # kept too
    else:
        x = os.getpid()
    if SHARED == 0:
        # dedented
        y = x if CLUSTER == 1 else math.inf

        x = scaled(y)
    unused = (x, x)
    return scaled(x, add=0) + Plan(x, 1, 2).area
'''
PRUNED = '''\
from typing import NamedTuple


class Plan(NamedTuple):
    """Two sizes."""

    rows: int
    columns: int

    @property
    def area(self):
        return self.rows * self.columns


def scaled(x):
    # The step.
    return x


def kernel_fn(x):
    if x > 3:
        # kept
        x = x + 1
    else:
        x = x + 2  # kept too
    # dedented
    y = x

    x = scaled(y)
    return scaled(x) + Plan(x, 2).area
'''
STATEMENTS = """\
def kernel_fn(x, y, out):
    add_1 = x + y
    mul_2 = add_1 * 2
    exp_3 = abs(mul_2)
    out[0] = exp_3 - add_1
    sub_4 = x - y
    sub_5 = 1 - sub_4
    out[1] = sub_5
    twice_6 = x + x
    plain = twice_6
    chosen_7 = y * y
    out[2] = chosen_7 if x > y else 0
    told_8 = x  # says why
    out[3] = told_8
    before_9 = out[0]
    out[0] = 5
    out[4] = before_9
    return plain
"""
INLINED = """\
def kernel_fn(x, y, out):
    add_1 = x + y
    out[0] = abs(add_1 * 2) - add_1
    out[1] = 1 - (x - y)
    plain = x + x
    chosen_7 = y * y
    out[2] = chosen_7 if x > y else 0
    told_8 = x  # says why
    out[3] = told_8
    before_9 = out[0]
    out[0] = 5
    out[4] = before_9
    return plain
"""


def run(source: str, *arguments: object) -> object:
    names: dict[str, object] = {}
    exec(source, names)  # noqa: S102
    return names["kernel_fn"](*arguments)


def test_what_constants_rule_out_goes_and_the_rest_stays_as_it_was() -> None:
    assert prune(SECTION) == PRUNED
    assert [run(SECTION, x) for x in range(6)] == [run(PRUNED, x) for x in range(6)]
    assert prune(PRUNED) == PRUNED


@pytest.mark.parametrize(
    "line",
    [
        "def f(n=1): return n\nG = [f]\ndef kernel_fn(x): return G[0](2) + f()",  # passed on: other calls
        "N = 1\ndef kernel_fn(x):\n    global N\n    N = x\n    return 1 if N else 2",
        "N = 1\ndef kernel_fn(N): return 1 if N else 2",  # its own name
        "def f(n):\n    n = n + 1\n    return n\ndef kernel_fn(x): return f(1)",
        "def f(n, m): return m\ndef kernel_fn(x): return f(*x)",
        "def kernel_fn(x):\n    y = print(x)\n    return 1",  # the value does something
        "def f(x, y): return x\ndef kernel_fn(x): return f(x, print(x))",
        "def kernel_fn(x):\n    for c in range(1):\n        x += c\n    return x + c",  # read behind the loop
    ],
)
def test_what_may_differ_stays(line: str) -> None:
    assert ast.dump(ast.parse(prune(line))) == ast.dump(ast.parse(line))


def test_names_that_one_expression_reads_are_written_in_place() -> None:
    assert inlined(STATEMENTS) == INLINED
    before, after = [0] * 5, [0] * 5
    assert run(STATEMENTS, 3, 2, before) == run(INLINED, 3, 2, after) and before == after


ROUNDS = """\
WARPS, ROUNDS, NONE = 4, 1, ()


def shifted(x, number, unread):
    return x[0] + number


def kernel_fn(x):
    for c in range(ROUNDS):
        # the only one
        y = x[c] + (c + 2) * 3 + c * 5
    for c in range(ROUNDS):
        y += shifted(x, y, x[1]) * x[c]
    for name in NONE:
        y += name
    low, high = y % WARPS, y // WARPS
    for step in range(ROUNDS):
        if y > 3:
            break
        y += low
    return y
"""
STRAIGHT = """\
WARPS, ROUNDS = 4, 1


def shifted(x, number):
    return x[0] + number


def kernel_fn(x):
    # the only one
    y = x[0] + 2 * 3
    y += shifted(x, y) * x[0]
    low = y % WARPS
    for step in range(ROUNDS):
        if y > 3:
            break
        y += low
    return y
"""


def test_loops_of_one_round_are_written_without_the_loop_and_what_nothing_reads_goes() -> None:
    assert prune(ROUNDS) == STRAIGHT
    assert [run(ROUNDS, [x, 5]) for x in (-9, 0, 4)] == [run(STRAIGHT, [x, 5]) for x in (-9, 0, 4)]


# Drafted files


@pytest.mark.parametrize(
    ("name", "most"), [("level1/softmax.py", 220), ("level1/gelu_tanh.py", 255), ("level3/gemm_bias_gelu.py", 350)]
)
def test_drafts_are_short(name: str, most: int) -> None:
    assert drafted(TASKS / name).count("\n") <= most


CONVOLUTION = """\
import torch
import torch.nn.functional as F


def reference_fn(x, weight, bias):
    return F.relu(F.conv2d(x, weight, bias, padding=1))


def get_inputs(device="cuda"):
    made = torch.randn(32, 128, 56, 56, device=device), torch.randn(256, 128, 3, 3, device=device)
    x, weight = (each.bfloat16().to(memory_format=torch.channels_last) for each in made)
    return x, weight, torch.randn(256, device=device).bfloat16()
"""


def test_a_drafted_convolution_is_short_and_holds_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(CONVOLUTION)
    draft = drafted(path)
    assert "make_im2col_tma_atom" in draft and draft.count("\n") <= 350
    assert unreached(draft) == []


@pytest.mark.sampled(5)
@pytest.mark.timeout(600)  # a convolution by Fourier transforms takes 38 s of CPU time
@pytest.mark.parametrize(
    "name",
    [
        "level1/softmax_rank4.py", "level1/argmax.py", "level2/layer_norm.py", "level2/group_norm.py",
        "level2/cross_entropy_mean.py", "level1/transposed_input.py", "level3/gemm_soft_cap.py",
        "level4/prefix_sum.py", "level4/sort_rows.py", "level4/radix_histogram.py", "level4/embedding_bag.py",
        *(pytest.param(f"{name}.py", marks=pytest.mark.slow)
          for name in ("level1/masked_select", "level1/outer_product", "level1/quantize_int8", "level1/softmax_wide",
                       "level2/adam_step", "level2/rope_halves", "level2/group_norm", "level2/mean_squared_error_total",
                       "level3/attention_alibi", "level3/attention_causal_gqa", "level3/causal_conv1d_silu",
                       "level3/gemm_fp8_bias", "level3/gemm_int8_weights", "level3/gemm_int4_groups",
                       "level3/lstm_step", "level3/group_norm_silu_conv", "level3/moe_router_grouped",
                       "level3/qk_norm_rope",
                       "level3/rms_norm_backward", "level3/rope_cache_write", "level3/squeeze_excite",
                       "level4/attention_backward", "level4/fft_convolution", "level4/gemm_fp8_blocks",
                       "level4/log_sum_exp_scan", "level4/moe_dispatch", "level4/selective_scan", "level4/top_k_wide")),
    ],
)  # fmt: skip
def test_a_draft_holds_nothing_that_its_configuration_cannot_take(name: str) -> None:
    assert unreached(drafted(TASKS / name)) == []


FUNCTIONS = {
    "a softmax over channels": ("torch.softmax(x, 1)", "(16, 64, 128, 128)"),
    "a long scan": ("x.cumsum(0)", "(1 << 24,)"),
    "scans of columns": ("x.cumsum(0)", "(1024, 4096)"),
    "pooling": ("F.max_pool2d(x, 3, 2, 1)", "(8, 32, 64, 64)"),
    "pooling with places": ("F.max_pool2d(x, 3, 2, 1, return_indices=True)", "(8, 32, 64, 64)"),
    "interpolation": ('F.interpolate(x, scale_factor=2, mode="bilinear")', "(8, 32, 64, 64)"),
    "a depthwise convolution": ("F.conv2d(x, x[0, :, :3, :3].unsqueeze(1), groups=32)", "(8, 32, 64, 64)"),
    "a transposed convolution": ("F.conv_transpose2d(x, x[:, :4, :4, :4], stride=2)", "(8, 8, 32, 32)"),
    "a transpose": ("x.mT.contiguous()", "(8, 2048, 1024)"),
    "pairs": ("torch.stack((x[..., ::2] + x[..., 1::2], x[..., ::2] - x[..., 1::2]), -1).flatten(-2)", "(4096, 1024)"),
    "the best of rows": ("torch.topk(x, 8)", "(512, 1024)"),
    "short sorts": ("x.sort(-1)[0]", "(4096, 256)"),
    "atomics": ("torch.zeros_like(x).index_add(0, (x[:, 0] * 9).long() % 4096, x)", "(65536, 64)"),
    "attention of float32": ("F.scaled_dot_product_attention(x, x, x)", "(2, 8, 256, 64)"),
    "a product of float32": ("x @ x.mT", "(512, 512)"),
    "rows of a product": ("torch.logsumexp(x @ x[:64].mT, -1)", "(512, 512)"),
    "a place in each row": ("((x @ x[:64].mT).relu(), (x @ x[:64].mT).argmax(-1))", "(512, 512)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_family_writes_what_its_configuration_cannot_take(name: str, tmp_path: Path) -> None:
    code, shape = FUNCTIONS[name]
    path = tmp_path / "problem.py"
    path.write_text(
        "import torch\nimport torch.nn.functional as F\n"
        f"def reference_fn(x): return {code}\n"
        f'def get_inputs(): return [torch.randn({shape}, device="cuda")]\n'
    )
    assert unreached(drafted(path)) == []


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_a_draft_of_two_products_holds_nothing_else(arch: str) -> None:
    assert unreached(drafted(TASKS / "level3/gated_mlp.py", arch)) == []


def test_functions_stand_two_lines_apart() -> None:
    lines = drafted(TASKS / "level1/softmax.py").split("\n")
    for number, line in enumerate(lines):
        if line.startswith(("def ", "class ", "@")) and not lines[number - 1].startswith("@"):
            assert lines[number - 2 : number] == ["", ""], line
