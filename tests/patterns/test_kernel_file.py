"""The assembled kernel file parses, keeps the problem verbatim, and its two halves do not disturb each other."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from cutesmith.errors import ContractError
from cutesmith.patterns.writing.kernel_file import assemble_kernel, rename_clashes, split_futures
from cutesmith.patterns.writing.renaming import pieces_of, renamed
from cutesmith.problems.contract import inspect

SECTION = """\
import math
import functools

SCALE = 2
_plans = {}


def block(x, SCALE=3):
    return x * SCALE


@functools.cache
def launch(n):
    global _plans
    _plans[n] = math.floor(n) + SCALE
    return _plans[n]


def kernel_fn(x):
    return block(launch(x), SCALE=SCALE)
"""
PROBLEM = '''\
"""Double it — é."""

import math


def reference_fn(x):
    return x * 2


def get_inputs():
    return [math.pi]
'''


def assemble(section: str = SECTION, problem: str = PROBLEM) -> str:
    return assemble_kernel(
        section,
        problem,
        problem="double.py",
        pattern="rows",
        configuration={"threads": 128, "early": False},
        arch="sm_90a",
        reasons="3 MB to move in one launch.",
    )


def module_of(text: str, path: Path) -> ModuleType:
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("assembled", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_problem_stands_verbatim_below_the_kernel(write_file: Callable[..., Path]) -> None:
    text = assemble()
    assert text.endswith(PROBLEM) and text.index("def kernel_fn") < text.index(PROBLEM)
    assert inspect(write_file(text)).kind == "kernel"


def test_header_says_what_it_is() -> None:
    docstring = ast.get_docstring(ast.parse(assemble()))
    assert docstring is not None
    expected = ("double.py", "sm_90a", "pattern rows", "threads=128", "cutesmith 0.", "3 MB to move")
    assert all(part in docstring for part in expected)
    assert "early" not in docstring  # it is switched off


def test_hostile_problem_name_stays_in_the_docstring() -> None:
    text = assemble_kernel(
        SECTION, PROBLEM, problem='a"""\nimport os\\', pattern="rows", configuration={}, arch="sm_90a"
    )
    assert not [node for node in ast.parse(text).body if isinstance(node, ast.Import) and node.names[0].name == "os"]


def test_future_imports_move_to_the_top(tmp_path: Path) -> None:
    problem = "from __future__ import annotations\n\nimport math\n\n\ndef reference_fn(x: Missing): return x\n"
    text = assemble(problem=problem)
    assert text.count("__future__") == 1
    assert module_of(text, tmp_path / "kernel.py").reference_fn(3) == 3


def test_struct_reads_annotations_so_they_stay_objects() -> None:
    problem = "from __future__ import annotations, generator_stop\ndef reference_fn(x): return x\n"
    text = assemble(section="import cutlass.cute as cute\ndef kernel_fn(x): return cute.struct\n", problem=problem)
    assert "import generator_stop" in text and "annotations" not in text


def test_split_futures_keeps_other_lines_in_place() -> None:
    source = 'x = 1\nfrom __future__ import (\n    annotations,\n)\n"""a\nb"""\n'
    names, body = split_futures(source, ast.parse(source))
    assert names == ["annotations"] and body.splitlines() == ["x = 1", "", "", "", '"""a', 'b"""']


@pytest.mark.parametrize("clash", ["SCALE = 50", "def block(x): return 0", "def launch(n): return 0", "_plans = 5"])
def test_problem_names_do_not_shadow_the_kernel(clash: str, tmp_path: Path) -> None:
    alone = module_of(SECTION, tmp_path / "alone.py").kernel_fn(7)
    module = module_of(assemble(problem=f"{PROBLEM}\n\n{clash}\n"), tmp_path / "kernel.py")
    assert module.kernel_fn(7) == alone == 18
    assert module.reference_fn(3) == 6


@pytest.mark.parametrize(
    "clash", ["import cmath as math", "math = None", "functools = 3", "from os import path as math"]
)
def test_imports_that_mean_something_else_are_renamed(clash: str, tmp_path: Path) -> None:
    problem = f"{clash}\n\n\ndef reference_fn(x):\n    return math\n"
    module = module_of(assemble(problem=problem), tmp_path / "kernel.py")
    assert module.kernel_fn(7) == 18


def test_equal_imports_are_left_alone() -> None:
    assert rename_clashes(SECTION, ast.parse(PROBLEM)) == SECTION


def test_attributes_and_strings_are_not_renamed() -> None:
    section = 'block = 4\n\n\ndef kernel_fn(x):\n    return x.block + block  # block "block"\n'
    renamed = rename_clashes(section, ast.parse("block = 1\n"))
    assert renamed == section.replace("block = 4", "kernel_block = 4").replace("+ block", "+ kernel_block")


def test_the_new_name_is_free() -> None:
    section = "plan = 4\n\n\ndef kernel_fn(x):\n    kernel_plan = x\n    return kernel_plan + plan\n"
    assert "kernel1_plan = 4" in rename_clashes(section, ast.parse("plan = 1\n"))


def test_problem_with_a_kernel_is_refused() -> None:
    with pytest.raises(ContractError, match=r"double\.py:3: the problem already defines kernel_fn"):
        assemble(problem="import torch\n\ndef kernel_fn(x): return x\n")


def test_problem_that_is_no_python_is_refused() -> None:
    with pytest.raises(ContractError, match="syntax error"):
        assemble(problem="def reference_fn(:\n")


def test_names_of_functions_and_fields_of_classes_are_not_the_module_s():
    section = """\
rows = 3


class Plan(NamedTuple):
    rows: int
    def twice(self, other=rows):
        return rows * 2 + self.rows + other


def of(rows, key=rows):
    return Plan(rows=rows) or [rows for _ in range(key)]


def total(plan):
    return plan.rows + rows + sum(rows for rows in (1, 2))


def local():
    rows = 4
    return lambda: rows


def counted():
    global rows
    rows = rows + 1
"""
    names = {"rows": "sizes_1_rows"}
    before, after = {"NamedTuple": NamedTuple}, {"NamedTuple": NamedTuple}
    exec(compile(section, "before", "exec"), before)  # the section is a text of this test
    exec(compile(renamed(section, names), "after", "exec"), after)
    assert after["sizes_1_rows"] == 3 and "rows" not in after
    for each in (before, after):
        assert each["Plan"](5).rows == 5 and each["Plan"](5).twice() == 14
        assert each["of"](7).rows == 7 and each["total"](each["Plan"](5)) == 11 and each["local"]()() == 4
        each["counted"]()
    assert after["sizes_1_rows"] == before["rows"] == 4


def test_pieces_are_cut_before_statements_of_the_module_and_nowhere_else():
    section = """\
import math

# said of the loop
for each in range(2):
    SCALE = each
else:
    SCALE = 3
TEXT = f(
    1,
)

@decorated
def scaled(x):
    x = x

    return x
"""
    pieces = pieces_of(section)
    assert [piece.split("\n")[0] for piece in pieces] == [
        "import math",
        "for each in range(2):",
        "TEXT = f(",
        "@decorated",
    ]
    assert "".join(pieces) == section


@pytest.mark.parametrize(
    "end", ["TEXT = '''\nscale\n'''\n", "@decorated(\n    1\n)\ndef f(): ...\n", "x = 1 + \\\nscale\n"]
)
def test_a_section_is_one_piece_where_a_line_of_a_statement_looks_like_another(end):
    section = f"scale = 1\n{end}"
    assert pieces_of(section) == (section,)
    assert renamed(section, {"scale": "one"}).startswith("one = 1\n")
