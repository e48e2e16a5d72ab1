"""Running a file as a module: its source is found, names are stripped from it, and what it raises is told."""

from __future__ import annotations

import inspect
import pickle
import sys

import pytest
import torch

from cutesmith.errors import ContractError
from cutesmith.problems.loading import LoadError, load_file

KERNEL = '''\
import dataclasses

import torch
from operator import add, mul as reference_alias


@dataclasses.dataclass
class Shape:
    rows: int


def kernel_fn(x):
    """Doubles."""
    return x * 2


def reference_fn(x):
    return x + x


class Inner:
    def reference_fn(self):
        return "kept"


def get_inputs():
    return [torch.ones(3)]


TOLERANCE = {"rtol": 1e-2}
'''


def test_functions_and_tolerance_are_given(write_file):
    loaded = load_file(write_file(KERNEL))
    (x,) = loaded.get_inputs()
    assert torch.equal(loaded.kernel_fn(x), loaded.reference_fn(x))
    assert loaded.get_input_sets is None
    assert loaded.tolerance == {"rtol": 0.01}
    assert loaded.source == KERNEL


def test_the_source_of_a_function_is_found(write_file):
    loaded = load_file(write_file(KERNEL))
    assert inspect.getsource(loaded.kernel_fn).startswith('def kernel_fn(x):\n    """Doubles."""')
    assert inspect.getsource(loaded.module) == KERNEL
    assert inspect.getsourcefile(inspect.unwrap(loaded.kernel_fn)) == str(loaded.contract.path)


def test_the_module_is_registered_so_that_pickling_works(write_file):
    loaded = load_file(write_file(KERNEL))
    assert sys.modules[loaded.module.__name__] is loaded.module
    assert pickle.loads(pickle.dumps(loaded.module.Shape(3))) == loaded.module.Shape(3)


def test_stripped_names_are_gone_and_lines_stay(write_file):
    loaded = load_file(write_file(KERNEL), strip=("reference_fn", "get_inputs", "reference_alias", "TOLERANCE"))
    assert not vars(loaded.module).keys() & {"reference_fn", "get_inputs", "reference_alias", "TOLERANCE"}
    assert loaded.module.add(1, 2) == 3
    assert loaded.module.Inner().reference_fn() == "kept"
    assert loaded.module.kernel_fn.__code__.co_firstlineno == 12
    assert "Doubles" in inspect.getsource(loaded.kernel_fn)
    assert loaded.tolerance == {}
    with pytest.raises(ContractError, match="has no reference_fn"):
        _ = loaded.reference_fn


@pytest.mark.parametrize(
    "definition",
    [
        "reference_fn = abs",
        "kept = reference_fn = abs",
        "reference_fn: object = abs",
        "from math import fabs as reference_fn",
        "import math as reference_fn",
        "class reference_fn: pass",
        "async def reference_fn(x): pass",
        "if True:\n    def reference_fn(x): return x",
        "try:\n    raise ValueError\nexcept ValueError:\n    reference_fn = abs\nfinally:\n    reference_fn = abs",
        "for _ in range(1):\n    reference_fn = abs",
        "(reference_fn, other) = abs, max",
        "globals()['reference_fn'] = abs",
    ],
)
def test_every_way_to_define_a_name_is_stripped(write_file, definition):
    text = f"{definition}\ndef kernel_fn(x): return x\nlast = 1\n"
    loaded = load_file(write_file(text), strip=("reference_fn",), with_problem=True)
    assert not hasattr(loaded.module, "reference_fn")
    assert loaded.module.last == 1


def test_the_other_target_of_an_assignment_is_kept(write_file):
    text = "kept = reference_fn = abs\ndef kernel_fn(x): return x\n"
    loaded = load_file(write_file(text), strip=("reference_fn",), with_problem=True)
    assert loaded.module.kept is abs


def test_a_stripped_definition_does_not_run(write_file):
    text = "reference_fn = 1 / 0\ndef kernel_fn(x): return x\n"
    assert load_file(write_file(text), strip=("reference_fn",), with_problem=True).kernel_fn(3) == 3


def test_no_bytecode_is_written_or_read(write_file, tmp_path):
    path = write_file(KERNEL)
    load_file(path, strip=("reference_fn",))
    assert load_file(path).reference_fn(2) == 4
    assert not (tmp_path / "__pycache__").exists()


def test_what_the_file_raises_is_told_with_its_line(write_file):
    path = write_file(KERNEL + "\n\nimport no_such_module\n")
    with pytest.raises(LoadError) as caught:
        load_file(path)
    assert f"{path}:33: ModuleNotFoundError while running the file" in caught.value.message
    assert caught.value.line == 33
    assert caught.value.log_tail.endswith("ModuleNotFoundError: No module named 'no_such_module'")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_an_exit_of_the_file_passes_through(write_file):
    with pytest.raises(SystemExit):
        load_file(write_file(KERNEL + "raise SystemExit(0)\n"))


def test_a_name_that_is_no_function_is_refused(write_file):
    loaded = load_file(write_file(KERNEL + "kernel_fn = 3\n"))
    with pytest.raises(ContractError, match="kernel_fn is not a function but 3"):
        _ = loaded.kernel_fn


def test_a_wrong_tolerance_is_refused(write_file):
    with pytest.raises(ContractError, match="TOLERANCE"):
        load_file(write_file(KERNEL.replace('{"rtol": 1e-2}', "0.1")))


def test_the_dsl_finds_the_source_of_a_kernel_in_a_loaded_file(write_file):
    text = """\
import cutlass
import cutlass.cute as cute

@cute.kernel
def fill(out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    if thread < 3:
        out[thread] = cutlass.Float32(1)

@cute.jit
def launch(out: cute.Tensor):
    fill(out).launch(grid=(1, 1, 1), block=(32, 1, 1))

def reference_fn(x):
    return x

def kernel_fn(x):
    out = cute.runtime.make_fake_compact_tensor(cutlass.Float32, (4,))
    return cute.compile(launch, out, options="--gpu-arch sm_90a")
"""
    loaded = load_file(write_file(text), strip=("reference_fn",), with_problem=True)
    assert loaded.kernel_fn(None) is not None
