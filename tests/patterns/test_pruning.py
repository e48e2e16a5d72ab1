"""What a rendered section cannot reach goes, the rest computes the same; drafted files hold nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cutesmith.patterns.writing.inlining import inlined
from cutesmith.patterns.writing.pruning import prune
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
    ],
)
def test_what_may_differ_stays(line: str) -> None:
    assert ast.dump(ast.parse(prune(line))) == ast.dump(ast.parse(line))


def test_names_that_one_expression_reads_are_written_in_place() -> None:
    assert inlined(STATEMENTS) == INLINED
    before, after = [0] * 5, [0] * 5
    assert run(STATEMENTS, 3, 2, before) == run(INLINED, 3, 2, after) and before == after


# Drafted files


@pytest.mark.parametrize(
    ("name", "most"), [("level1/softmax.py", 220), ("level1/gelu_tanh.py", 255), ("level3/gemm_bias_gelu.py", 350)]
)
def test_drafts_are_short(name: str, most: int) -> None:
    assert drafted(TASKS / name).count("\n") <= most


@pytest.mark.parametrize(
    "name",
    [
        "level1/softmax_rank4.py", "level1/argmax.py", "level2/layer_norm.py", "level2/group_norm.py",
        "level2/cross_entropy_mean.py", "level1/transposed_input.py", "level3/gemm_soft_cap.py",
        "level4/prefix_sum.py",
        *(pytest.param(f"level3/{name}.py", marks=pytest.mark.slow)
          for name in ("attention_alibi", "gemm_int4_groups", "squeeze_excite", "group_norm_silu_conv")),
    ],
)  # fmt: skip
def test_a_draft_holds_nothing_that_its_configuration_cannot_take(name: str) -> None:
    check_all_of(drafted(TASKS / name))


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_a_draft_of_two_products_holds_nothing_else(arch: str) -> None:
    check_all_of(drafted(TASKS / "level3/gated_mlp.py", arch))


def check_all_of(draft: str) -> None:
    """Every function, import and constant is read, and no condition is decided by constants."""
    kernel, _ = draft.split("# ---- The problem, as it was given")
    tree = ast.parse(kernel)
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    functions = [each.name for each in tree.body if isinstance(each, (ast.FunctionDef, ast.ClassDef))]
    assert [each for each in functions if each not in {*read, "kernel_fn"}] == []
    imported = [alias for each in tree.body if isinstance(each, (ast.Import, ast.ImportFrom)) for alias in each.names]
    bound = [alias.asname or alias.name.partition(".")[0] for alias in imported]
    assert [each for each in bound if each not in read] == []
    constants = {
        target.id
        for each in tree.body
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    known = (ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Name, ast.operator, ast.unaryop)
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.IfExp)):
            parts = list(ast.walk(node.test))
            names = {each.id for each in parts if isinstance(each, ast.Name)} - {"const_expr"}
            decided = all(
                isinstance(each, (*known, ast.Call, ast.boolop, ast.cmpop, ast.expr_context)) for each in parts
            )
            assert not decided or names - constants, ast.unparse(node.test)


def test_functions_stand_two_lines_apart() -> None:
    lines = drafted(TASKS / "level1/softmax.py").split("\n")
    for number, line in enumerate(lines):
        if line.startswith(("def ", "class ", "@")) and not lines[number - 1].startswith("@"):
            assert lines[number - 2 : number] == ["", ""], line
