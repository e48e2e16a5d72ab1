"""Lines of delivered files: none is too long, and those that were broken say the same."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cutesmith.lint.linter import lint_file
from cutesmith.patterns.writing.kernel_file import PROBLEM_MARK
from cutesmith.patterns.writing.wrapping import WIDTH, wrapped
from tests.patterns.running import drafted

TASKS = Path(__file__).parents[2] / "evals/tasks"
TRANSPOSED = """\
import torch
import torch.nn.functional as F


def reference_fn(x, weight, bias):
    return F.gelu(F.conv_transpose2d(x, weight, bias, stride=2, padding=1, output_padding=1))


def get_inputs():
    drawn = torch.Generator("cuda").manual_seed(0)
    sizes = (32, 64, 128, 128), (64, 64, 3, 3), (64,)
    return [torch.randn(*size, device="cuda", generator=drawn) for size in sizes]
"""
LONG = "".join(f"value_{number}_of_many, " for number in range(12)).rstrip(", ")
SECTION = f'''\
"""The first line of a docstring that is long: {LONG}."""
from the.module import {LONG}

TEXT = """
{LONG}
"""


class Plan:
    """Some text.

    {LONG}
    """

    def first(self, {LONG}):
        """One line. {LONG}"""
        del {LONG}
        if ({LONG}) != (self.{LONG}):  # why: {LONG}
            raise ValueError(f"a text of {{self.first}} and {{self[1, 2]}}: {LONG}; {{self}} and", 'it\\'s "#(,"')
        # A comment. {LONG}
        found = self.called(1)(  # a short comment
            self, [{LONG}], name=f"{{self}}", other={{"a": ({LONG})}},
            more=self.of.values[{LONG}].then(lambda x: x[0] if self.called else self.called_otherwise(x, x, x))
        )
        return self.a({LONG}) if self.called else self.called_otherwise({LONG})

    def second(self):
        value = {" or ".join(f"self.value_{number}.of_many" for number in range(8))}
        key = ({" | ".join(f"self.data_{number}.data_ptr()" for number in range(8))}) & 15
        return [({" * ".join(f"self.data_{number} + 1" for number in range(12))}) for value in key if value]
'''


def meaning(source: str) -> tuple[str, list[str]]:
    """The tree without what changes nothing: ends of lines in docstrings, brackets around what is deleted; imports."""
    tree = ast.parse(source)
    imports = [each for each in tree.body if isinstance(each, ast.ImportFrom)]
    tree.body = [each for each in tree.body if each not in imports]
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value.value = " ".join(node.value.value.split())
        elif isinstance(node, ast.Delete) and isinstance(node.targets[0], ast.Tuple):  # del (a, b) is del a, b
            node.targets = node.targets[0].elts
    return ast.dump(tree), [f"{each.module}.{alias.name}" for each in imports for alias in each.names]


def test_broken_lines_mean_the_same():
    found = wrapped(SECTION)
    assert meaning(found) == meaning(SECTION)
    assert [line for line in found.split("\n") if len(line) > WIDTH and line != LONG] == []
    assert found.split("\n").count(LONG) == 1, "the text of a string is what it was"
    assert wrapped(found) == found


def test_lines_that_fit_are_left():
    section = "x = [\n    1,\n    2,\n]\n"
    assert wrapped(section) == section


def check(path: Path, arch: str) -> str:
    """The delivered file, whose lines all fit; the problem's own are its author's."""
    text = drafted(path, arch)
    ours, _ = text.split(PROBLEM_MARK)
    assert [line for line in ours.split("\n") if len(line) > WIDTH] == []
    return text


@pytest.mark.parametrize("name", ["level1/softmax.py", "level4/prefix_sum.py"])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_no_line_of_a_delivered_file_is_longer(name, arch):
    check(TASKS / name, arch)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["level2/group_norm.py", "level3/gemm_soft_cap.py", "level3/attention_alibi.py"])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_no_line_of_a_longer_file_is_longer(name, arch):
    check(TASKS / name, arch)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_a_view_of_a_view_names_the_inner_one(arch, tmp_path):
    """Each step of weights whose taps are taken apart stands in a function once, and lint accepts the file."""
    path, kernel = tmp_path / "transposed.py", tmp_path / "kernel.py"
    path.write_text(TRANSPOSED)
    kernel.write_text(check(path, arch))
    assert lint_file(kernel).passed
    functions = [ast.unparse(each) for each in ast.parse(kernel.read_text()).body if isinstance(each, ast.FunctionDef)]
    unfolded = [each.count(".unfold(") for each in functions if ".unfold(" in each]
    assert len(unfolded) > 2 and set(unfolded) == {2}, "one for each dimension"
