"""The judge of values, tried on CPU functions: honest ones pass, and each kind of wrong is called by its name."""

import json
import re
from pathlib import Path

import pytest
import torch

from cutesmith.errors import ContractError, UsageError
from cutesmith.judge.candidate_side.outputs import never_written
from cutesmith.judge.candidate_side.watching import KernelWatch
from cutesmith.judge.reference_side.precision import in_float64
from cutesmith.judge.reference_side.problem_calls import names_beside
from cutesmith.judge.reference_side.reference import Reference
from cutesmith.judge.reference_side.requests import Load
from cutesmith.judge.reference_side.structure import structure_violation
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.transfer.chunks import LARGEST_FILE
from cutesmith.judge.transfer.requests import TensorLayout
from cutesmith.judge.transfer.tensors import GUARD_BYTES, Guarded, poisoned_elements, read_tensor, write_tensor
from cutesmith.judge.verification import Judge, verify_kernel
from cutesmith.verdicts import CaseOutcome, ExitCode
from tests.judge.in_process import verdict_here

ROOT = Path(__file__).parents[2]
PROBLEM = """
import numpy
import torch

def reference_fn(x, w):
    return torch.softmax(x, -1) * w

def get_inputs():
    return [torch.randn(33, 20), torch.rand(20)]

def get_input_sets():
    yield [torch.randn(4, 6), torch.rand(6)]
"""
HONEST = """
def compute(x, w):
    x, w = x.detach().numpy().astype("float64"), w.numpy()
    powers = numpy.exp(x - x.max(-1, keepdims=True)) if x.size else x
    return powers / powers.sum(-1, keepdims=True) * w

def kernel_fn(x, w):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    y.numpy()[...] = compute(x, w)
    return y
"""
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")


def verdict_of(tmp_path, kernel, problem=PROBLEM, **options):
    path = tmp_path / "kernel.py"
    path.write_text(problem + kernel)
    return verdict_here(path, on="cpu", **options)


def kernel_returning(expression, before="", problem_lines=""):
    body = HONEST.split("def kernel_fn")[0] + f"{problem_lines}\ndef kernel_fn(x, w):\n"
    body += "    y = torch.empty_like(x, memory_format=torch.contiguous_format)\n"
    body += "".join(f"    {line}\n" for line in before.splitlines())
    return f"{body}    return {expression}\n"


def test_an_honest_function_passes_every_case(tmp_path):
    verdict = verdict_of(tmp_path, HONEST)
    assert verdict.exit_code == ExitCode.PASSED, verdict.summary
    names = {case.name for case in verdict.cases}
    assert {"derived: odd sizes", "derived: NaN and Inf", "derived: layouts of `x`", "derived: empty"} <= names
    assert verdict.cases[0].outputs[0].max_ulp <= 1


WRITE_BEFORE = "if y.numel():\n    import ctypes\n    ctypes.c_float.from_address(y.data_ptr() - 4).value = 1"
WRITE = "y.numpy()[...] = compute(x, w)"
WRONG = {
    "unwritten tail": ("y", "y.view(-1).numpy()[:-1] = compute(x, w).reshape(-1)[:-1]", "O1", ExitCode.WRONG_RESULT),
    "nothing written": ("y", "", "O1", ExitCode.WRONG_RESULT),
    "changed input": ("y", f"{WRITE}\nx.numpy()[..., :1] = 0", "O2", ExitCode.REJECTED),
    "zeros": ("y", "y.numpy()[...] = 0", "O3", ExitCode.WRONG_RESULT),
    "nan": ("y", "y.numpy()[...] = float('nan')", "O6", ExitCode.WRONG_RESULT),
    "input returned": ("x", "", "O13", ExitCode.REJECTED),
    "list": ("[y]", WRITE, "", ExitCode.USAGE),
    "none": ("None", WRITE, "", ExitCode.USAGE),
    "tuple": ("(y,)", WRITE, "O13", ExitCode.WRONG_RESULT),
    "dtype": ("torch.empty_like(y, dtype=torch.float64)", "", "O13", ExitCode.WRONG_RESULT),
    "shape": ("y.view(-1)", WRITE, "O13", ExitCode.WRONG_RESULT),
    "strides": ("torch.empty(x.shape[::-1]).t()", "", "O13", ExitCode.WRONG_RESULT),
    "subclass": ("y.as_subclass(torch.nn.Parameter)", WRITE, "T3", ExitCode.REJECTED),
    "torch": ("torch.softmax(x, -1) * w", "", "W1", ExitCode.REJECTED),
    "copy": ("y", f"x.transpose(0, 1).contiguous()\n{WRITE}", "W1", ExitCode.REJECTED),
    "outside": ("y", f"{WRITE}\n{WRITE_BEFORE}", "O8", ExitCode.WRONG_RESULT),
}


@pytest.mark.slow
@pytest.mark.parametrize("largest", [LARGEST_FILE, 0], ids=["files", "chunks"])
@pytest.mark.parametrize("name", WRONG)
def test_each_wrong_is_called_by_its_name(tmp_path, name, largest):
    expression, before, rule, code = WRONG[name]
    verdict = verdict_of(tmp_path, kernel_returning(expression, before), largest_file=largest)
    assert (verdict.rule, verdict.exit_code) == (rule, code), verdict.summary
    assert code != ExitCode.USAGE or "not a tensor or a tuple of tensors" in verdict.summary


def test_bytes_that_equal_the_poison_by_chance_were_written():
    minus_one, ninety = torch.full((4,), -1, dtype=torch.int8), torch.full((4,), 0x5A, dtype=torch.int8)
    runs = [(minus_one, 0xFF), (minus_one, 0x5A), (ninety, 0x5A)]
    masks = [[poisoned_elements(output, poison)] for output, poison in runs]
    assert [int(mask.sum()) for (mask,) in masks] == [4, 0, 4]
    assert never_written(masks) == 0
    assert never_written([masks[0], masks[2]]) == 4
    assert never_written([masks[0], [torch.ones(3, dtype=torch.bool)]]) == 4  # another shape says nothing


@pytest.mark.parametrize("largest", [LARGEST_FILE, 0], ids=["files", "chunks"])
@pytest.mark.parametrize("key", ["x.data_ptr()", "(x.data_ptr(), x._version)", "(id(x), x._version)"])
def test_a_result_cached_by_identity_is_a_replay(tmp_path, key, largest):
    before = f"key = {key}\nif key not in RESULTS:\n    {WRITE}\n    RESULTS[key] = (x, y)"
    kernel = kernel_returning("RESULTS[key][1]", before, "RESULTS = {}")
    verdict = verdict_of(tmp_path, kernel, largest_file=largest)
    assert (verdict.exit_code, verdict.rule) == (ExitCode.REJECTED, "R1"), verdict.summary


def test_one_buffer_for_all_calls_is_found(tmp_path):
    before = "out = BUFFERS.setdefault(x.shape, y)\nout.numpy()[...] = compute(x, w)"
    verdict = verdict_of(tmp_path, kernel_returning("out", before, "BUFFERS = {}"))
    assert (verdict.exit_code, verdict.rule) == (ExitCode.REJECTED, "O13")


@pytest.mark.slow
def test_a_kernel_may_refuse_shapes_that_were_not_promised(tmp_path):
    before = f"if x.shape[-1] not in (6, 20) or not x.is_contiguous():\n    raise ValueError('no such shape')\n{WRITE}"
    verdict = verdict_of(tmp_path, kernel_returning("y", before))
    assert verdict.passed, verdict.summary
    declined = sum(case.outcome is CaseOutcome.DECLINED for case in verdict.cases)
    assert verdict.declined == declined > 0
    assert f"{len(verdict.cases) - declined} of {len(verdict.cases)} cases, {declined} declined" in verdict.summary


@pytest.mark.slow
@pytest.mark.parametrize("mistake", ["undefined", "[][0]", "None + 1", "x.no_such", "1 // 0"])
def test_a_mistake_on_shapes_that_were_not_promised_is_no_refusal(tmp_path, mistake):
    before = f"if x.shape[-1] not in (6, 20):\n    {mistake}\n{WRITE}"
    verdict = verdict_of(tmp_path, kernel_returning("y", before))
    assert verdict.exit_code == ExitCode.CRASHED and "kernel.py:" in verdict.summary


def test_a_kernel_that_is_silently_wrong_on_odd_sizes_fails(tmp_path):
    before = f"{WRITE}\nif x.shape[-1] % 2:\n    y.numpy()[..., -1] = 0"
    verdict = verdict_of(tmp_path, kernel_returning("y", before))
    assert verdict.exit_code == ExitCode.WRONG_RESULT
    assert "odd sizes" in verdict.summary


@pytest.mark.slow
def test_a_call_that_does_not_end_is_named_by_its_own_inputs(tmp_path):
    """Cases of several draws are one request: not the first one's inputs, but those of the call that hangs."""
    path = tmp_path / "kernel.py"
    path.write_text(PROBLEM + kernel_returning("y", f"{WRITE}\nwhile x.shape[-1] > 8000:\n    pass"))
    verdict = verify_kernel(path, VerifyOptions(timeout=4), on="cpu")
    assert verdict.exit_code == ExitCode.TIMED_OUT
    assert re.search(r"did not finish within 4 s.* on float32\[3, 8[23]\d\d\]", verdict.summary), verdict.summary


TWENTY_COLUMNS = PROBLEM.replace("torch.randn(4, 6), torch.rand(6)", "torch.randn(4, 20), torch.rand(20)")
OTHER_COLUMNS = 'if x.shape[-1] != 20:\n    raise ValueError("20 columns")\n'
PACKED_W = "w = w.as_strided(w.shape, (1,), w.storage_offset())\n"
NO_STRIDES = "if not (x.is_contiguous() and w.is_contiguous()) or (x.data_ptr() | w.data_ptr()) % 16:\n    "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "code", "told"),
    [
        (OTHER_COLUMNS, ExitCode.PASSED, "declined, by the file's own reference"),
        (OTHER_COLUMNS + PACKED_W, ExitCode.WRONG_RESULT, "with every second element"),
        (
            f"if x.shape[-1] % 4 == 0 and x.shape[-1] != 48: {PACKED_W}",
            ExitCode.WRONG_RESULT,
            "with every second element",
        ),
        (
            f"{OTHER_COLUMNS}{NO_STRIDES}raise ValueError('packed')\n",
            ExitCode.PASSED,
            "no other layout of `x` or `w` was tried, as the kernel declines each (",
        ),
    ],
    ids=["honest", "one width", "whole tiles", "declines"],
)
def test_layouts_are_tried_at_the_sizes_that_a_kernel_takes(tmp_path, before, code, told):
    """At small sizes, which it declines, a kernel of one width had no input with other strides."""
    verdict = verdict_of(tmp_path, kernel_returning("y", before + WRITE), TWENTY_COLUMNS)
    assert verdict.exit_code == code and told in verdict.summary, verdict.summary


@pytest.mark.slow
def test_shapes_are_not_derived_where_the_file_names_one(tmp_path):
    single = PROBLEM.split("def get_input_sets")[0]
    names = {case.name for case in verdict_of(tmp_path, HONEST, single).cases}
    assert "derived: offsets" in names
    assert "derived: odd sizes" not in names
    promised = verdict_of(tmp_path, HONEST, single + "DERIVED_SHAPES = True\n")
    assert "derived: odd sizes" in {case.name for case in promised.cases}


@pytest.mark.slow
def test_sloppy_sums_of_large_offsets_fail(tmp_path):
    problem = "import numpy, torch\ndef reference_fn(x):\n    return x.var(-1)\n"
    problem += "def get_inputs():\n    return [torch.randn(8, 512)]\n"
    kernel = "def kernel_fn(x):\n    y = torch.empty(x.shape[0])\n    with numpy.errstate(all='ignore'):\n        {}\n"
    kernel += "    return y\n"
    naive = "a = x.numpy(); y.numpy()[...] = ((a * a).mean(-1) - a.mean(-1) ** 2) * (512 / 511)"
    right = "y.numpy()[...] = x.numpy().astype('float64').var(-1, ddof=1)"
    assert verdict_of(tmp_path, kernel.format(right), problem).passed
    verdict = verdict_of(tmp_path, kernel.format(naive), problem)
    assert verdict.exit_code == ExitCode.WRONG_RESULT
    assert "large offset" in verdict.summary


def test_pure_cancellation_in_a_derived_case_is_told_and_excused(tmp_path):
    problem = "import numpy, torch\ndef reference_fn(x):\n    return x + 100 - 100\n"
    problem += "def get_inputs():\n    return [torch.randn(64, 64)]\n"
    kernel = "def kernel_fn(x):\n    y = torch.empty_like(x)\n    w = numpy.float32(200)\n"
    kernel += "    y.numpy()[...] = x.numpy() + w - w\n"
    verdict = verdict_of(tmp_path, kernel + "    return y\n", problem)
    assert verdict.passed, verdict.summary
    told = {case.name: case.explanation for case in verdict.cases if "ill-conditioned" in case.explanation}
    assert "derived: sizes" in told and "derived: offsets" not in told


def test_casts_inside_the_reference_are_widened_too():
    function = lambda x: (x.float() * 3).to(torch.bfloat16).sum()
    x = torch.randn(1000).bfloat16()
    assert in_float64(function, [x]).dtype is torch.float64
    assert torch.allclose(in_float64(function, [x]), (x.double() * 3).sum(), rtol=1e-14)
    assert torch.get_default_dtype() is torch.float32


def test_tensors_move_through_files_with_their_layout(tmp_path):
    x = torch.randn(6, 8, dtype=torch.float64)[1:5, ::2].t()
    back = read_tensor(write_tensor(x, tmp_path / "x"), "cpu")
    assert torch.equal(back, x) and back.stride() == x.stride()


def test_guard_zones_see_a_write_on_either_side():
    for offset in (-1, 12):
        guarded = Guarded((3, 4), (4, 1), torch.float32, "cpu")
        assert guarded.zones.intact() and guarded.begin == GUARD_BYTES
        guarded.raw.view(torch.float32)[GUARD_BYTES // 4 + offset] = 0
        assert not guarded.zones.intact()


@pytest.mark.slow
def test_a_workspace_of_an_earlier_call_that_is_too_small_now_is_found(tmp_path):
    # What the emulated GPU tells by its memory check, a GPU tells by the guard zones: here of CPU tensors.
    lines = """
import ctypes

KEPT = []

def kernel_fn(x, w):
    if not KEPT GROWN:
        KEPT.append(torch.empty(x.shape[0]))
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    largest = (ctypes.c_float * x.shape[0]).from_address(KEPT[-1].data_ptr())
    largest[:] = x.detach().numpy().max(-1, initial=-numpy.inf).tolist()
    y.numpy()[...] = compute(x, w) if list(largest) else 0
    return y
"""
    for grown, code in (("", ExitCode.WRONG_RESULT), ("or KEPT[-1].numel() < x.shape[0]", ExitCode.PASSED)):
        honest = HONEST.partition("def kernel_fn")[0]
        verdict = verdict_of(tmp_path, honest + lines.replace("GROWN", grown))
        assert verdict.exit_code == code, verdict.summary
        assert code == ExitCode.PASSED or "outside a tensor that an earlier call allocated" in verdict.summary


def test_the_watch_counts_what_torch_computes():
    x = torch.randn(4, 4)
    with KernelWatch("cpu") as watch:
        y = torch.empty_like(x)
        torch.zeros(2)
        x.view(-1).unsqueeze(0).transpose(0, 1)
    assert not watch.computed and not watch.copied
    assert bool(y.isnan().all())
    with KernelWatch("cpu") as watch:
        x.t().contiguous()
        x.exp()
        x.to(torch.float64)
    assert dict(watch.copied) == {"clone": 1}
    assert set(watch.computed) == {"exp", "_to_copy"}


def test_only_what_the_reference_needs_is_run(tmp_path):
    source = "import torch\nimport cutlass\nA = 1\nB = A\ndef helper(x):\n    return x * B\nassert cutlass\n"
    source += "def kernel_fn(x):\n    return cutlass.go(x)\ndef reference_fn(x):\n    return helper(x)\n"
    assert names_beside(source, tmp_path / "k.py", ["reference_fn", "torch"]) == ["cutlass", "kernel_fn"]


def test_strides_of_size_one_dimensions_say_nothing():
    got, want = (TensorLayout("float32", (1, 5), stride, 0) for stride in ((99, 1), (5, 1)))
    assert structure_violation([got], False, [want], False) is None


TAKES_ONE = "def reference_fn(x): return x\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file"),
        ("def kernel_fn(x:\n", "syntax error"),
        ("def kernel_fn(x): pass\n", "defines no reference_fn and no get_inputs"),
        (
            "def kernel_fn(x): pass\ndef reference_fn(x, y): pass\ndef get_inputs(): pass\n",
            "takes 1 positional argument",
        ),
    ],
)
def test_broken_files_end_with_usage(tmp_path, text, message):
    path = tmp_path / "kernel.py"
    if text is not None:
        path.write_text(text)
    verdict = verify_kernel(path, on="compile")
    assert verdict.exit_code == ExitCode.USAGE
    assert message in verdict.summary


@pytest.mark.parametrize(
    ("lines", "device", "message"),
    [
        ("def get_inputs(): return [torch.ones(2)]\n", "cuda", "is on cpu"),
        ("def get_inputs(): raise KeyError('w')\n", "cpu", "get_inputs raised KeyError"),
        ("def get_inputs(): return [1, 2]\n", "cpu", "reference_fn(x) does not take the 2"),
    ],
)
def test_broken_problems_are_contract_errors(tmp_path, lines, device, message):
    path = tmp_path / "problem.py"
    path.write_text(f"import torch\n{TAKES_ONE}{lines}")
    with pytest.raises(ContractError) as caught:
        Reference().load(Load(device, str(path), 1))
    assert message in str(caught.value)


def test_a_reference_that_raises_is_a_broken_contract(tmp_path):
    problem = PROBLEM.replace("return torch.softmax(x, -1) * w", "raise RuntimeError('no such op')")
    verdict = verdict_of(tmp_path, HONEST, problem)
    assert verdict.exit_code == ExitCode.USAGE and "reference_fn raised RuntimeError: no such op" in verdict.summary


def test_unknown_places_are_refused():
    with pytest.raises(UsageError, match="--on moon"):
        verify_kernel("kernel.py", on="moon")


@pytest.mark.parametrize("where", ["kernel.py", "problem.py"])
def test_a_file_that_never_finishes_loading_is_to_blame(tmp_path, where):
    wait = "__import__('time').sleep(1000)\n"  # a loop would wait no better and burn the time of other tests
    texts = {"kernel.py": f"import numpy, torch\n{HONEST}", "problem.py": PROBLEM}
    for name, text in texts.items():
        (tmp_path / name).write_text(text + (wait if name == where else ""))
    kernel, problem = (tmp_path / name for name in texts)
    verdict = verify_kernel(kernel, VerifyOptions(timeout=1.5), problem=problem, on="cpu")
    assert verdict.exit_code == ExitCode.TIMED_OUT, verdict.summary
    subject = "problem.py" if where == "problem.py" else "the file"
    assert f"kernel.py: {subject} did not finish loading within 1.5 s" in verdict.summary
    assert verdict.seconds < 60


@pytest.mark.parametrize("largest", [LARGEST_FILE, 0], ids=["files", "chunks"])
def test_the_whole_path_through_two_confined_processes(tmp_path, largest):
    path = tmp_path / "kernel.py"
    path.write_text(PROBLEM + HONEST)
    verdict = Judge(path=path, problem=path, options=VerifyOptions(seeds=1, largest_file=largest)).verdict("cpu")
    assert verdict.exit_code == ExitCode.PASSED, verdict.summary
    assert verdict.cases[0].outputs and all(verdict.confinement.values())
    assert verdict.status == "verified" and verdict.ran_on == "cpu"
    assert set(verdict.confinement) == {"no_new_privileges", "landlock", "reads", "seccomp"}
    assert json.loads(verdict.to_json())["cases"]


@pytest.mark.slow
def test_a_compile_only_pass_is_never_verified():
    verdict = verdict_here(ROOT / "evals" / "adversarial" / "honest_plain.py", on="compile")
    assert (verdict.exit_code, verdict.status) == (ExitCode.PASSED, "compiled"), verdict.summary
    assert len(verdict.cases) == 4
