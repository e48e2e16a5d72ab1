"""What the argument of `cutesmith generate` means; nothing of it is executed."""

from __future__ import annotations

import ast

import pytest

from cutesmith.errors import ContractError, UsageError
from cutesmith.problems import contract
from cutesmith.problems.input_shorthand import get_inputs_source, input_expression
from cutesmith.problems.sources import MOST_CHARACTERS, InputsNeededError, KernelRequest, resolve

PROBLEM = "import torch\n\n\ndef reference_fn(x):\n    return x\n\n\ndef get_inputs():\n    return [torch.ones(2)]\n"
NORMS = """\
import torch  # the user's own comment

raise SystemExit("this file must never be run")


def rms_norm(x, weight, eps=1e-6):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


async def later(x):
    return x


def by_name(x, *, dim):
    return x.sum(dim)


def constant():
    return torch.ones(1)


def spread(*tensors):
    return sum(tensors)


class Block(torch.nn.Module):
    def __init__(self, width, *, bias=True):
        super().__init__()

    def forward(self, x):
        return x


class Plain(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


class Table:
    pass
"""
SPECS = ("bf16[64,128]", "bf16[128]", "1e-5")


@pytest.fixture
def norms(write_file):
    return write_file(NORMS, "norms.py")


def names_of(source):
    return {name for s in contract.module_scope(ast.parse(source).body) for name in contract.defined_names(s)}


def value_of(source, name):
    return next(ast.unparse(s) for s in ast.parse(source).body if name in contract.defined_names(s))


@pytest.mark.parametrize(
    "sentence",
    [
        "fused add + RMSNorm, bf16, 16384×5120, H100",
        "scale/shift with ReLU at 3 TB/s",
        "softmax",
        "écrire une softmax",
        "a kernel for the following:\ndef f(x): return x / 2",
    ],
)
def test_a_sentence_is_a_request(sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = resolve(f"  {sentence} ")
    assert isinstance(found, KernelRequest) and found.text == sentence
    assert found.name.replace("_", "").isalnum() and len(found.name) <= 60


def test_a_request_names_its_folder_after_its_first_words():
    assert resolve("Fused add + RMSNorm, bf16, 16384×5120, on an H100").name == "fused_add_rmsnorm_bf16_16384_5120"


@pytest.mark.parametrize("sentence", ["", "  \n\t", "...!?", "1234 5678", "a" + " b" * MOST_CHARACTERS])
def test_what_says_nothing_or_too_much_is_no_request(sentence):
    with pytest.raises(UsageError, match="request|does not say what to compute"):
        resolve(sentence)


def test_a_problem_file_is_taken_as_it_is(write_file):
    path = write_file(PROBLEM, "softmax.py")
    found = resolve(str(path))
    assert (found.source, found.kind, found.name, found.changed) == (PROBLEM, "problem", "softmax", False)
    assert found.origin == str(path) == str(found.path)


def test_a_kernelbench_file_is_taken_as_it_is(write_file):
    text = "import torch\nclass Model(torch.nn.Module): ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
    found = resolve(str(write_file(text, "1_relu.py")))
    assert (found.source, found.kind, found.changed) == (text, "kernelbench", False)


def test_a_kernel_file_is_refused(write_file):
    path = write_file(PROBLEM + "\ndef kernel_fn(x): ...\n")
    for argument in (str(path), f"{path}:reference_fn"):
        with pytest.raises(ContractError, match=r"already defines kernel_fn \(line 11\)"):
            resolve(argument)


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("sofmax.py", "Did you mean {folder}/softmax.py?"),
        ("softmax", "Did you mean {folder}/softmax.py?"),
        ("deep/er.py", ""),
        ("sub", "is a folder"),
        ("sofmax.py:reference_fn", "Did you mean {folder}/softmax.py?"),
    ],
)
def test_a_path_that_leads_nowhere_is_told_with_what_is_there(write_file, tmp_path, argument, said):
    write_file(PROBLEM, "softmax.py")
    (tmp_path / "sub").mkdir()
    with pytest.raises(UsageError) as error:
        resolve(f"{tmp_path}/{argument}")
    assert said.format(folder=tmp_path) in str(error.value)


@pytest.mark.parametrize("data", [b"\0\0", b"\xff\xfe", b"def f(:\n", b"x = 1\n", b""])
def test_a_file_that_is_no_problem_is_told(tmp_path, data):
    path = tmp_path / "file.py"
    path.write_bytes(data)
    with pytest.raises((ContractError, UsageError)) as error:
        resolve(str(path))
    assert "file.py" in str(error.value) and error.value.exit_code == 2


def test_a_file_of_functions_says_how_to_name_one(norms):
    with pytest.raises(ContractError, match=r"norms\.py:rms_norm"):
        resolve(str(norms))


def test_a_function_becomes_the_reference_and_its_file_stays_as_it_is(norms):
    found = resolve(f"{norms}:rms_norm", SPECS)
    assert found.source.startswith(NORMS.rstrip()) and value_of(found.source, "reference_fn")
    assert value_of(found.source, "reference_fn") == "reference_fn = rms_norm"
    drawn = value_of(found.source, "get_inputs")
    assert "torch.randn((64, 128), device='cuda', dtype=torch.bfloat16)" in drawn and "1e-05" in drawn
    assert (found.origin, found.name, found.kind, found.changed) == (
        f"{norms}:rms_norm",
        "norms_rms_norm",
        "problem",
        True,
    )


def test_the_file_s_own_inputs_are_used_unless_others_are_given(write_file):
    own = f"{PROBLEM}\n\ndef double(x):\n    return 2 * x\n\n\ndef get_input_sets():\n    return []\n"
    path = write_file(own, "own.py")
    assert value_of(resolve(f"{path}:double").source, "get_inputs").endswith("return [torch.ones(2)]")
    given = resolve(f"{path}:double", ["f32[4]"]).source
    assert "get_input_sets" not in names_of(given) and "torch.ones(2)" not in given
    assert given.splitlines().index("def double(x):") == own.splitlines().index("def double(x):")  # lines stay
    whole = resolve(str(path), ["f32[4]"])
    assert "torch.randn((4,)" in whole.source and whole.origin == str(path) and whole.name == "own"


def test_a_function_without_inputs_says_both_ways_and_carries_what_there_is(norms):
    with pytest.raises(InputsNeededError) as error:
        resolve(f"{norms}:rms_norm")
    assert "--input" in error.value.hint and "def get_inputs()" in error.value.hint
    assert value_of(error.value.source.source, "reference_fn") == "reference_fn = rms_norm"
    assert error.value.source.origin == f"{norms}:rms_norm"


@pytest.mark.parametrize(
    ("name", "inputs", "said"),
    [
        ("rms_nrom", (), "Did you mean {path}:rms_norm?"),
        ("zzz", (), "Functions and classes there: rms_norm, later"),
        ("", (), "defines no function or class ''"),
        ("torch", (), "defines no function or class 'torch'"),
        ("later", (), "is a coroutine"),
        ("by_name", SPECS, "needs dim by name"),
        ("constant", (), "takes no arguments"),
        ("rms_norm", ("f32[4]",), "takes 2 to 3 arguments and --input was given 1 times"),
        ("Table", SPECS, "is a class without forward"),
        ("Block", ("f32[4]",), "cannot be built without width"),
    ],
)
def test_a_name_that_is_no_problem_is_told(norms, name, inputs, said):
    with pytest.raises(UsageError) as error:
        resolve(f"{norms}:{name}", inputs)
    assert said.format(path=norms) in str(error.value)


def test_any_number_of_inputs_goes_to_a_function_of_any_number(norms):
    assert value_of(resolve(f"{norms}:spread", ("f32[4]",) * 5).source, "reference_fn") == "reference_fn = spread"


def test_a_module_becomes_a_kernelbench_file(norms, write_file):
    found = resolve(f"{norms}:Plain", ("f32[4,4]",))
    assert found.kind == "kernelbench" and value_of(found.source, "Model") == "Model = Plain"
    assert value_of(found.source, "get_init_inputs") == "def get_init_inputs():\n    return []"
    with_arguments = f"{NORMS}\n\ndef get_init_inputs():\n    return [8]\n\n\ndef get_inputs():\n    return [8]\n"
    built = resolve(f"{write_file(with_arguments, 'built.py')}:Block")
    assert {"Model", "get_inputs", "get_init_inputs"} <= names_of(built.source)
    assert built.source.count("def get_init_inputs") == 1


def test_a_module_beside_a_reference_takes_its_place(write_file):
    text = f"{PROBLEM}\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    found = resolve(f"{write_file(text, 'net.py')}:Net")
    assert "reference_fn" not in names_of(found.source) and found.kind == "kernelbench"


def test_inputs_need_a_file():
    with pytest.raises(UsageError, match="--input belongs to a function of a file"):
        resolve("fused softmax", ("f32[4]",))


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("bf16[16384,5120]", "torch.randn((16384, 5120), device='cuda', dtype=torch.bfloat16)"),
        ("torch.float16[16_384x8×2]", "torch.randn((16384, 8, 2), device='cuda', dtype=torch.float16)"),
        ("FP32[7,]", "torch.randn((7,), device='cuda', dtype=torch.float32)"),
        ("f64[]", "torch.randn((), device='cuda', dtype=torch.float64)"),
        ("i64[4096]<50257", "torch.randint(0, 50257, (4096,), device='cuda', dtype=torch.int64)"),
        ("int8[4] < 1000", "torch.randint(0, 128, (4,), device='cuda', dtype=torch.int8)"),
        ("bool[2,3]", "torch.rand((2, 3), device='cuda') < 0.5"),
        ("fp8_e4m3[8,8]", "torch.randn((8, 8), device='cuda').to(torch.float8_e4m3fn)"),
        ("1e-5", "1e-05"),
        (" -3", "-3"),
        ("true", "True"),
        ("inf", None),
        ("'tanh'", "'tanh'"),
        ("None", "None"),
        ("torch.float16", "torch.float16"),
        ("(1, -2.5)", "(1, -2.5)"),
        (" ['x', (None,)]", "['x', (None,)]"),
        ("[bool[8,4], 2]", "[torch.rand((8, 4), device='cuda') < 0.5, 2]"),
        ("[i64[4]<5]", "[torch.randint(0, 5, (4,), device='cuda', dtype=torch.int64)]"),
        ("[bf16[4], tanh]", None),
        ("tanh", None),
        ("float16", None),
        ("{1: 2}", None),
        ("__import__('os')", None),
        ("bf17[4]", None),
        ("bf16[4,-1]", None),
        ("bf16[4]<8", None),
        ("i64[4]<0", None),
        ("bf16[a]", None),
        ("bf16[1,1,1,1,1,1,1,1,1]", None),
        ("", None),
    ],
)
def test_the_short_form_of_an_input(text, expression):
    if expression is None:
        with pytest.raises(UsageError, match="--input"):
            input_expression(text)
    else:
        assert ast.unparse(ast.parse(input_expression(text), mode="eval")) == expression


def test_the_short_forms_make_a_get_inputs_that_draws_them():
    import torch

    space: dict = {}
    source = get_inputs_source(["bf16[2,3]", "i32[4]<5", "bool[6]", "e5m2[2]", "2.5"])
    exec(source.replace('"cuda"', '"cpu"'), space)
    first, indices, mask, narrow, number = space["get_inputs"]()
    assert (first.dtype, first.shape, number) == (torch.bfloat16, (2, 3), 2.5)
    assert indices.dtype == torch.int32 and 0 <= int(indices.min()) <= int(indices.max()) < 5
    assert (mask.dtype, narrow.dtype) == (torch.bool, torch.float8_e5m2)
