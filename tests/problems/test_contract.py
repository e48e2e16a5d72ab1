"""Inspecting a file without running it: its kind, its names, and what is wrong with it."""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path

import pytest
import torch

from cutesmith.errors import ContractError
from cutesmith.problems import contract
from cutesmith.verdicts import ExitCode

KERNEL = """\
import torch

def kernel_fn(x, y):
    return x

def reference_fn(x, y):
    return x + y

def get_inputs():
    return [torch.randn(4, device="cuda"), 2.0]
"""
PROBLEM = KERNEL.replace("def kernel_fn(x, y):\n    return x\n", "")
KERNELBENCH = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x

def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
"""


def problem_of(path, **options) -> ContractError:
    with pytest.raises(ContractError) as caught:
        contract.inspect(path, **options)
    assert caught.value.exit_code == ExitCode.USAGE
    return caught.value


@pytest.mark.parametrize(("text", "kind"), [(KERNEL, "kernel"), (PROBLEM, "problem"), (KERNELBENCH, "kernelbench")])
def test_the_kind_is_read_off_the_names(write_file, text, kind):
    found = contract.inspect(write_file(text))
    assert found.kind == kind
    assert found.has_problem
    assert found.has_kernel == (kind == "kernel")
    assert found.wraps_model == (kind == "kernelbench")


def test_names_have_the_line_of_their_last_definition(write_file):
    found = contract.inspect(write_file(KERNEL + "def reference_fn(x, y):\n    return x\n"))
    assert found.names["kernel_fn"] == 3
    assert found.names["reference_fn"] == 11
    assert found.names["torch"] == 1


def test_nothing_is_run(write_file, tmp_path):
    mark = tmp_path / "was_run"
    contract.inspect(write_file(f"open({str(mark)!r}, 'w').close()\n{KERNEL}"))
    assert not mark.exists()


@pytest.mark.parametrize(
    "definition",
    [
        "reference_fn = lambda x, y: x",
        "reference_fn: object = max",
        "from operator import add as reference_fn",
        "if True:\n    def reference_fn(x, y): return x",
        "try:\n    import nothing\nexcept ImportError:\n    reference_fn = max",
        "with open('/dev/null'):\n    reference_fn = other = max",
        "(reference_fn, other) = max, min",
    ],
)
def test_every_way_to_define_a_name_counts(write_file, definition):
    text = KERNEL.replace("def reference_fn(x, y):\n    return x + y\n", definition + "\n")
    assert "reference_fn" in contract.inspect(write_file(text)).names


@pytest.mark.parametrize(
    "definition",
    [
        "def other():\n    reference_fn = max",
        "class Other:\n    def reference_fn(self): pass",
        "reference_fn: object",
        "print('reference_fn')",
    ],
)
def test_a_name_of_an_inner_scope_does_not_count(write_file, definition):
    error = problem_of(write_file(KERNEL.replace("def reference_fn(x, y):\n    return x + y\n", definition + "\n")))
    assert "defines no reference_fn" in error.message


@pytest.mark.parametrize(
    ("text", "missing", "line"),
    [
        ("def kernel_fn(x): return x\n", "reference_fn and no get_inputs", "def reference_fn(x): ..."),
        (KERNEL.replace("get_inputs", "inputs"), "no get_inputs", "def get_inputs(): return ["),
        ("x = 1\n", "reference_fn and no get_inputs", "import torch\n"),
        ("", "reference_fn and no get_inputs", "def get_inputs(): return ["),
        (KERNELBENCH.replace("get_init_inputs", "other"), "no get_init_inputs", "def get_init_inputs(): return []"),
    ],
)
def test_missing_names_are_named_and_the_three_lines_shown(write_file, text, missing, line):
    error = problem_of(write_file(text))
    assert missing in error.message
    assert line in error.hint
    assert len(error.hint[error.hint.index("The lines to write") :].splitlines()) == 4


def test_beside_a_problem_file_kernel_fn_is_enough(write_file):
    path = write_file("def kernel_fn(x): return x\n")
    assert contract.inspect(path, with_problem=True).kind == "kernel"


def test_a_kernel_may_have_a_model_as_its_reference(write_file):
    found = contract.inspect(write_file(KERNELBENCH + "def kernel_fn(x): return x\n"))
    assert found.kind == "kernel"
    assert found.wraps_model


@pytest.mark.parametrize(
    ("kernel", "reference", "fits"),
    [
        ("x", "x, y", False),
        ("x, y", "x, y", True),
        ("*xs", "x, y", True),
        ("x, y, z=1", "x, y", True),
        ("x, y, z", "*xs", True),
        ("x, y, *zs", "x", False),
        ("x, /, y", "x, *, y", False),
        ("", "x", False),
    ],
)
def test_kernel_and_reference_must_take_the_same_arguments(write_file, kernel, reference, fits):
    text = f"def kernel_fn({kernel}): ...\ndef reference_fn({reference}): ...\ndef get_inputs(): ...\n"
    if fits:
        assert contract.inspect(write_file(text)).kind == "kernel"
    else:
        error = problem_of(write_file(text))
        assert "kernel_fn (line 1) takes" in error.message
        assert "reference_fn (line 2) takes" in error.message


def test_a_missing_file_is_named_and_a_near_one_suggested(write_file, tmp_path):
    write_file(KERNEL, "kernel.py")
    error = problem_of(tmp_path / "kernl.py")
    assert "no such file" in error.message
    assert f"Did you mean {tmp_path / 'kernel.py'}?" == error.hint


def test_a_folder_is_no_file(write_file, tmp_path):
    write_file(KERNEL, "kernel.py")
    error = problem_of(tmp_path)
    assert "is a folder" in error.message
    assert "kernel.py" in error.hint


def test_a_device_or_pipe_is_refused_without_reading(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    assert "not a regular file" in problem_of(tmp_path / "pipe.py").message
    assert "not a regular file" in problem_of("/dev/zero").message


@pytest.mark.parametrize("name", [b"\xff.py", b"a\nb.py", b"\x1b[31m.py"])
def test_a_name_that_is_no_plain_text_is_refused(tmp_path, name):
    path = tmp_path / os.fsdecode(name)
    path.write_text(KERNEL)
    error = problem_of(path)
    assert "its name is not plain text" in error.message and error.message.isprintable()
    assert "Rename" in error.hint


def test_names_in_any_script_are_taken(tmp_path):
    path = tmp_path / "ядро\u3000softmax\u00a0µ 核.py"
    path.write_text(KERNEL)
    assert contract.inspect(path).has_kernel


def test_a_path_with_a_nul_or_too_long_is_refused():
    assert "cannot be read" in problem_of("a\0b.py").message
    assert "cannot be read" in problem_of("a" * 5000).message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x7fELF\0\0\1", "binary file"),
        (b"# ok\nx = '\xff\xfe'\n", ":2: not UTF-8: byte 0xff"),
        (b"x" * (contract.MAX_BYTES + 1), "5,000,001 bytes"),
        (b"def f(:\n    pass\n", ":1: syntax error"),
        (b"x = 1\n\ny = (\n", ":3: syntax error"),
        (b"x = " + b"(" * 300 + b")" * 300, "too many nested parentheses"),
    ],
)
def test_a_file_that_is_no_python_is_refused(tmp_path, data, message):
    path = tmp_path / "kernel.py"
    path.write_bytes(data)
    assert message in problem_of(path).message


def test_a_syntax_error_shows_its_line(write_file):
    assert problem_of(write_file("x = 1\nreturn = 2\n")).hint.strip() == "return = 2"


def test_very_deep_nesting_is_an_error_and_no_crash(write_file):
    assert "cannot be parsed" in problem_of(write_file("x = " + "-" * 200_000 + "1")).message


def test_an_invalid_escape_is_no_business_of_the_contract(write_file):
    assert contract.inspect(write_file('pattern = "\\d"\n' + KERNEL)).kind == "kernel"


def test_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_bytes(b"\xef\xbb\xbf" + KERNEL.replace("\n", "\r\n").encode())
    assert contract.problem_source(path) == KERNEL
    assert contract.inspect(path).names["kernel_fn"] == 3


def test_the_content_hash_is_sha256(write_file):
    path = write_file(KERNEL)
    assert contract.content_hash(path) == hashlib.sha256(KERNEL.encode()).hexdigest()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (None, "returned None, not a list"),
        (torch.zeros(2), "returned a Tensor, not a list"),
        ({}, "returned a dict, not a list"),
        ([], "returned no inputs"),
        ([1, torch.zeros(2)], "input 1 is on cpu: get_inputs() must return CUDA tensors"),
        ([1, {"x": 1}], "input 1 is a dict"),
        ([(1, [2, {3}])], "input 0[1][1] is a set"),
        ([[torch.zeros(2)]], "input 0[0] is on cpu"),
        ([1 + 2j], "input 0 is a complex"),
        ([torch.device("cuda")], "input 0 is a device"),
    ],
)
def test_wrong_inputs_are_named(inputs, message):
    with pytest.raises(ContractError) as caught:
        contract.check_inputs(inputs)
    assert message in caught.value.message
    assert caught.value.hint


def test_tensors_on_the_asked_device_and_scalars_pass():
    x = torch.zeros(2)
    assert contract.check_inputs((x, 1, 2.0, True), device="cpu") == [x, 1, 2.0, True]


def test_a_function_is_checked_by_the_arguments_that_its_values_are():
    values = contract.check_inputs([[torch.zeros(2), torch.ones(3)], "sum", None, (1, 2)], device="cpu")
    contract.check_arity(lambda tensors, mode, weight, dims: None, "kernel_fn", values)
    with pytest.raises(ContractError, match="does not take the 4 inputs"):
        contract.check_arity(lambda tensors, mode, weight: None, "kernel_fn", values)
    flops = contract.check_work(lambda tensors, mode, weight, dims: 7 * len(tensors), "ALGORITHMIC_FLOPS", values)
    assert flops == 14


def test_the_hint_for_a_cpu_tensor_says_what_to_write():
    with pytest.raises(ContractError, match='Write device="cuda"'):
        contract.check_inputs([torch.zeros(2)])


def test_arity_names_the_function_and_the_inputs():
    def kernel_fn(x, y):
        return x

    contract.check_arity(kernel_fn, "kernel_fn", [1, 2])
    contract.check_arity(max, "kernel_fn", [1, 2, 3])
    with pytest.raises(ContractError, match=r"kernel_fn\(x, y\) does not take the 1 inputs"):
        contract.check_arity(kernel_fn, "kernel_fn", [1])


@pytest.mark.parametrize("value", [None, {"rtol": 1e-2}, {"rtol": 0, "atol": 1e-3}])
def test_a_tolerance_of_numbers_passes(value):
    assert contract.check_tolerance(value, "kernel.py") == (value or {})


@pytest.mark.parametrize(
    "value",
    [
        {},
        1e-3,
        {"tol": 1},
        {"rtol": "1e-3"},
        {"rtol": True},
        {"atol": -1},
        {"atol": math.nan},
        {"rtol": math.inf},
    ],
)
def test_any_other_tolerance_is_refused(value):
    with pytest.raises(ContractError, match="TOLERANCE"):
        contract.check_tolerance(value, "kernel.py")


def test_a_problem_alone_is_no_kernel_file(tmp_path: Path) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text("def reference_fn(x):\n    return x\n\n\ndef get_inputs():\n    return []\n")
    with pytest.raises(ContractError, match="has no kernel_fn") as raised:
        contract.inspect_kernel(problem)
    assert "cutesmith generate" in raised.value.hint and "def kernel_fn" in raised.value.hint
