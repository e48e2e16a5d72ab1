"""Kernel files through `compile`: in the handler for what is reported, in the confined worker for what can go wrong."""

import json
import re
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from cutesmith.compiling.compilation import compile_kernel
from cutesmith.compiling.requests import CompileFile
from cutesmith.compiling.sass import disassembler
from cutesmith.errors import ContractError, UsageError
from cutesmith.verdicts import ExitCode
from tests.kernel_files import kernel_file

FILE = """
import torch
def kernel_fn(x):
    {body}
def reference_fn(x):
    return x
def get_inputs():
    return {inputs}
"""


@pytest.fixture(scope="module")
def compiled():
    """A function that compiles a file in this process: what is reported is the same, and no process has to start."""
    from cutesmith.compiling.compilation_worker import Compiler

    handle = Compiler(confined=False).handle

    def report(path, arch="sm_90a", problem=None):
        path = kernel_file(path) if isinstance(path, str) else path
        request = CompileFile(path=str(path), problem=problem and str(problem), arch=arch, sources={})
        return asdict(handle(request).report)

    return report


def test_a_kernel_alone_takes_its_inputs_from_the_problem(compiled, tmp_path):
    problem = tmp_path / "problem.py"
    problem.write_text(FILE.format(body="pass", inputs=CUDA).replace("kernel_fn", "unused"))
    kernel = tmp_path / "kernel.py"
    source = (kernel_file("relu_tvm_ffi")).read_text()
    kernel.write_text(source.replace("def reference_fn", "def _reference").replace("def get_inputs", "def _inputs"))
    assert "defines no reference_fn" in compiled(kernel)["error"]
    report = compiled(kernel, problem=problem)
    assert report["exit_code"] == ExitCode.PASSED and len(report["kernels"]) == 1


def test_a_report(compiled):
    report = compiled("relu_tvm_ffi")
    (kernel,) = report["kernels"]
    assert report["exit_code"] == ExitCode.PASSED
    assert (kernel["grid"], kernel["block"], kernel["cluster"]) == ((2048, 1, 1), (128, 1, 1), (1, 1, 1))
    assert (kernel["widest_global_load_bits"], kernel["widest_global_store_bits"]) == (128, 128)
    assert (kernel["stack_bytes"], kernel["spill_store_bytes"], kernel["spill_load_bytes"]) == (0, 0, 0)
    assert 4 <= kernel["registers"] <= 32
    assert (kernel["occupancy_percent"], kernel["occupancy_limit"]) == (100.0, "threads")


ARCHS = ("sm_80", "sm_90a", "sm_100a", "sm_120a")
GOOD = [(name, arch) for name in ("relu_from_dlpack", "relu_direct_jit", "smem_reverse") for arch in ARCHS]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "arch"), [*GOOD, ("copy_reads_values", "sm_90a"), ("hopper_only", "sm_90a")])
def test_good_kernels_compile(compiled, name, arch):
    report = compiled(name, arch)
    assert (report["exit_code"], report["error"]) == (ExitCode.PASSED, "")
    assert report["kernels"][0]["arch"] == arch


def test_distinct_launches_are_reported_apart(compiled):
    kernels = compiled("copy_three_launches")["kernels"]
    assert [(kernel["grid"][0], kernel["launches"]) for kernel in kernels] == [(8, 2), (4, 1)]


def test_spills_are_reported(compiled):
    (kernel,) = compiled("many_spills")["kernels"]
    assert kernel["spill_store_bytes"] > 1000
    assert kernel["occupancy_limit"] == "registers"
    assert "a block of 1024 threads has 64 for each" in kernel["notes"][0]


def test_loads_that_wait_for_one_another_are_told(compiled):
    (kernel,), (chain,) = (compiled(name)["kernels"] for name in ("copy_sum_of_neighbours", "copy_chain"))
    assert (kernel["global_loads"], kernel["loads_in_flight"], kernel["bytes_in_flight"]) == (4, 4, 16)
    assert (chain["global_loads"], chain["loads_in_flight"], chain["bytes_in_flight"]) == (5, 1, 4)
    assert not kernel["notes"] and "each of the 5 global loads is waited for" in " ".join(chain["notes"])


def test_inputs_of_8_gigabytes_cost_nothing(compiled):
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = compiled("copy_of_8_gigabytes")
    assert report["exit_code"] == ExitCode.PASSED
    assert report["kernels"][0]["grid"] == (1 << 24, 1, 1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "arch", "words"),
    [
        ("copy_2048_threads", "sm_90a", "2048 threads a block"),
        ("copy_over_smem", "sm_90a", "400000 bytes of shared memory"),
        ("copy_odd_cluster", "sm_90a", "multiple of the cluster's 2"),
        ("copy_wide_cluster", "sm_100a", "at most 16"),
        ("copy_cluster", "sm_80", "has no clusters"),
        ("copy_cooperative", "sm_90a", "cooperative grid"),
    ],
)
def test_what_the_hardware_would_refuse_does_not_pass(compiled, name, arch, words):
    report = compiled(name, arch)
    assert (report["exit_code"], report["error_code"]) == (ExitCode.DOES_NOT_COMPILE, "LAUNCH_REFUSED")
    assert words in report["error"]
    assert any(words in sentence for sentence in report["kernels"][0]["refused"])


@pytest.mark.parametrize(
    ("name", "arch", "code", "words", "source"),
    [
        ("early_return", "sm_90a", "UNSUP_EARLY_EXIT", "Early exit", "return"),
        ("hopper_only", "sm_80", "CONFIG_UNSUPPORTED_ARCH", "sm_80", "elect_one"),
        ("copy_type_error", "sm_90a", "ValueError", "same dtype", "cute.where"),
        ("raw_torch_tensor", "sm_90a", "ARG_ANNOTATION_MISMATCH", "torch.Tensor", "cute.compile"),
    ],
)
def test_errors_keep_the_dsls_code_message_and_line(compiled, name, arch, code, words, source):
    report = compiled(name, arch)
    assert (report["exit_code"], report["error_code"]) == (ExitCode.DOES_NOT_COMPILE, code)
    assert words in report["error"]
    assert "\x1b" not in report["error"]
    lines = (kernel_file(name)).read_text().splitlines()
    assert any(source in line for line in lines[report["error_line"] - 1 : report["error_line"] + 2])


def test_no_launch_is_an_error(compiled):
    report = compiled("copy_no_launch")
    assert (report["exit_code"], report["error_code"]) == (ExitCode.DOES_NOT_COMPILE, "NO_LAUNCH")


def test_a_python_error_keeps_its_traceback(compiled):
    report = compiled("copy_crashes")
    assert (report["exit_code"], report["error_code"]) == (ExitCode.CRASHED, "RuntimeError")
    assert report["error"].endswith("RuntimeError: no such tile: 17")
    assert "compilation_worker" not in report["error"]
    assert "raise RuntimeError" in (kernel_file("copy_crashes")).read_text().splitlines()[report["error_line"] - 1]


CUDA = "[torch.zeros(4, device='cuda')]"


@pytest.mark.parametrize(
    ("body", "inputs", "exit_code", "words"),
    [
        ("return x", "[torch.zeros(4)]", ExitCode.USAGE, "cuda"),
        ("return x", "[]", ExitCode.USAGE, "no inputs"),
        ("return x", "[1, 2]", ExitCode.USAGE, "2 inputs"),
        ("return x", "1 / 0", ExitCode.CRASHED, "ZeroDivisionError"),
        ("raise SystemExit(0)", CUDA, ExitCode.CRASHED, "SystemExit"),
        ("return x", CUDA, ExitCode.DOES_NOT_COMPILE, "launched no CuTe kernel"),
        ("return x", "[torch.zeros(0, 4, device='cuda')]", ExitCode.UNAVAILABLE, "inputs with elements"),
    ],
)
def test_broken_files(compiled, write_file, body, inputs, exit_code, words):
    report = compiled(write_file(FILE.format(body=body, inputs=inputs)))
    assert report["exit_code"] == exit_code
    assert words in report["error"]


def test_a_file_that_fails_at_import(compiled, write_file):
    report = compiled(write_file("import no_such_package\n" + FILE.format(body="return x", inputs="[]")))
    assert report["exit_code"] == ExitCode.CRASHED
    assert "no_such_package" in report["error"]


@pytest.mark.slow
def test_three_architectures_in_one_confined_worker(tmp_path):
    started = time.perf_counter()
    verdict = compile_kernel(kernel_file("relu_tvm_ffi"), keep_dir=tmp_path)
    assert verdict.status == "compiled", verdict.summary
    assert [report.arch for report in verdict.archs] == ["sm_80", "sm_90a", "sm_100a"]
    assert "nothing was executed" in verdict.summary
    for report in verdict.archs:
        assert f".target {report.arch}" in Path(report.artifacts["ptx"]).read_text()
        assert Path(report.artifacts["cubin"]).read_bytes()[:4] == b"\x7fELF"
        if disassembler():
            assert "EXIT" in Path(report.artifacts["sass"]).read_text() and not report.no_sass
        else:
            assert "nvidia-cuda-nvdisasm" in report.no_sass
    assert json.loads(verdict.to_json())["archs"][0]["kernels"][0]["block"] == [128, 1, 1]
    assert time.perf_counter() - started < 60  # 5 s on an idle machine; a test cannot know what else runs


def test_a_crash_of_the_process_ends_one_architecture_not_the_verdict(write_file):
    body = "import os; torch.cuda.get_device_capability() == (8, 0) and os._exit(3)"
    verdict = compile_kernel(write_file(FILE.format(body=body, inputs=CUDA)), ["sm_80", "sm_90a"])
    assert verdict.exit_code == ExitCode.CRASHED
    assert "exit code 3" in verdict.archs[0].error
    assert verdict.archs[1].error_code == "NO_LAUNCH"


def test_an_endless_kernel_times_out(write_file):
    body = "import time; time.sleep(1000)"  # a loop would end no later and burn the time of other tests
    verdict = compile_kernel(write_file(FILE.format(body=body, inputs=CUDA)), ["sm_90a"], timeout=3)
    assert (verdict.exit_code, verdict.status) == (ExitCode.TIMED_OUT, "timed_out")


def test_bad_requests(tmp_path):
    with pytest.raises(UsageError):
        compile_kernel(kernel_file("relu_tvm_ffi"), ["sm_42"])
    with pytest.raises(UsageError):
        compile_kernel(kernel_file("relu_tvm_ffi"), [])
    with pytest.raises(ContractError):
        compile_kernel(tmp_path / "missing.py")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "body",
    [
        "x.cpu(); return copy(x)",
        "x.sum().item(); return copy(x)",
        "return copy(x) if x[0] < 100 else x",
        "x.tolist(); return copy(x)",
        "x.nonzero(); return copy(x)",
    ],
)
def test_every_way_to_read_a_value_falls_back_to_real_tensors(compiled, write_file, body):
    source = (kernel_file("copy_cluster")).read_text()
    for name, other in (
        ("copy(x: cute", "launch(x: cute"),
        ("compile(copy", "compile(launch"),
        ("kernel_fn(", "copy("),
    ):
        source = source.replace(name, other)
    report = compiled(write_file(f"{source}\n\ndef kernel_fn(x):\n    {body}\n"))
    assert report["error"] == ""


VARIANTS = """
import functools
import torch
import cutlass
from cutlass import cute

@cute.kernel
def double_kernel(x: cute.Tensor, y: cute.Tensor):
    y[cute.arch.thread_idx()[0]] = x[cute.arch.thread_idx()[0]] + x[cute.arch.thread_idx()[0]]

@cute.jit
def double(x: cute.Tensor, y: cute.Tensor):
    double_kernel(x, y).launch(grid=(1, 1, 1), block=(32, 1, 1))

@functools.cache
def built(dtype):
    if dtype == torch.int8:
        raise TypeError("no int8 here")
    kind = {torch.float32: cutlass.Float32, torch.float16: cutlass.Float16}[dtype]
    fake = cute.runtime.make_fake_compact_tensor(kind, (32,))
    return cute.compile(double, fake, fake, options="--enable-tvm-ffi")

def kernel_fn(x):
    y = torch.empty_like(x)
    built(x.dtype)(x, y)
    return y

def reference_fn(x):
    return 2 * x

def get_inputs():
    return [torch.ones(32, device="cuda")]

def get_input_sets():
    yield get_inputs()
    yield [torch.ones(32, device="cuda", dtype=torch.float16)]
"""


def test_every_variant_that_the_input_sets_need_is_built(compiled, write_file):
    kernels = compiled(write_file(VARIANTS))["kernels"]
    assert len({kernel["name"] for kernel in kernels}) == 2
    assert [kernel["launches"] for kernel in kernels] == [1, 1]


def test_kernels_of_one_name_are_told_apart(compiled, write_file):
    source = VARIANTS.replace("def built(dtype):", "def built(dtype, width):").replace(
        "built(x.dtype)", "built(x.dtype, *x.shape)"
    )
    source = source.replace(
        "y: cute.Tensor):\n    double_kernel", "y: cute.Tensor, width: cutlass.Constexpr):\n    double_kernel"
    )
    source = source.replace("block=(32, 1, 1)", "block=(width, 1, 1)").replace(
        "fake, fake, options", "fake, fake, width, options"
    )
    source = source.replace("(kind, (32,))", "(kind, (cute.sym_int(),), stride_order=(0,))")
    source = source.replace(
        'yield [torch.ones(32, device="cuda", dtype=torch.float16)]', 'yield [torch.ones(64, device="cuda")]'
    )
    report = compiled(write_file(source))
    assert report["error"] == "" and len({kernel["name"] for kernel in report["kernels"]}) == 1
    assert [kernel["block"] for kernel in report["kernels"]] == [(32, 1, 1), (64, 1, 1)]


def test_shapes_that_nest_differently_are_explained(compiled, write_file):
    source = VARIANTS.replace(
        "y[cute.arch.thread_idx()[0]] = x[cute.arch.thread_idx()[0]] + x[cute.arch.thread_idx()[0]]",
        "y[0] = (cute.make_rmem_tensor(4, x.element_type).load() + cute.zipped_divide(x, (4,))[None, 0].load())[0]",
    )
    report = compiled(write_file(source))
    assert report["exit_code"] == ExitCode.DOES_NOT_COMPILE
    assert "doesn't match: (4, (4,))" in report["error"] and "nest differently" in report["error"]


def test_an_error_of_an_input_set_names_it(compiled, write_file):
    report = compiled(write_file(VARIANTS + "    yield [torch.ones(32, device='cuda', dtype=torch.int8)]\n"))
    assert report["exit_code"] == ExitCode.CRASHED
    assert report["error"].startswith("get_input_sets()[2]: ") and "no int8 here" in report["error"]


UNSTABLE = """
import torch
from cutlass import Int32, cute

@cute.jit
def host(n: Int32):
    total = 0
    for i in range(n):
        if i > 3:
            cute.printf("late")
        total += 0.5
    cute.printf("%f", total)

def kernel_fn(x):
    cute.compile(host, Int32(4))
    return x

def reference_fn(x):
    return x

def get_inputs():
    return [torch.zeros(4, device="cuda")]
"""


def test_an_unstable_join_points_at_the_assignment(compiled, write_file):
    report = compiled(write_file(UNSTABLE))
    assert report["error_code"] == "TYPE_UNSTABLE_JOIN"
    assert UNSTABLE.splitlines()[report["error_line"] - 1].strip() == "total += 0.5"
    assert "Give `total` the type Float32 before line 8" in report["error"]


def test_all_unstable_names_of_a_compilation_are_told_at_once(compiled, write_file):
    several = """
    total, last = 0, None
    for i in range(n):
        if i > 3:
            inner = total
        total += 0.5
    count = 1
    if n > 2:
        last = n
        count = 1.5
"""
    report = compiled(write_file(UNSTABLE.replace("    total = 0\n", several.lstrip("\n"))))
    assert "Give `total` the type Float32 before line 8" in report["error"]
    assert "Give `last` a value of type Int32 before line 13: a dynamic region keeps no None." in report["error"]
    assert "Give `count` the type Float32 before line 13" in report["error"]
    assert "to None" not in report["error"] and "`inner`" not in report["error"]


SPILLING = """
import cutlass, cutlass.cute as cute, torch
from cutlass import Float32

@cute.kernel
def heavy(x: cute.Tensor, y: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    r = cute.make_rmem_tensor((160,), Float32)
    for i in cutlass.range(160, unroll_full=True):
        r[i] = x[tid, i]
    for k in cutlass.range({steps}):
        for i in cutlass.range(160, unroll_full=True):
            r[i] = r[i] * r[(i * 7 + 3) % 160] + x[k, tid]
    for i in cutlass.range(160, unroll_full=True):
        y[tid, i] = r[i]

@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    heavy(x, y).launch(grid=(1, 1, 1), block=(128, 1, 1), min_blocks_per_mp=4)

def kernel_fn(x):
    y = torch.empty_like(x)
    views = [cute.runtime.from_dlpack(each, assumed_align=16) for each in (x, y)]
    cute.compile(launch, *views)(*views)
    return y

def reference_fn(x):
    return x

def get_inputs():
    return [torch.randn(128, 160, device="cuda")]
"""


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])  # branches have two forms
def test_a_spill_names_the_cap_and_whether_a_loop_pays_for_it(compiled, write_file, arch):
    (looped,) = compiled(write_file(SPILLING.replace("{steps}", "x.shape[0], unroll=1")), arch)["kernels"]
    note = next(note for note in looped["notes"] if "registers ran out" in note)
    assert looped["registers"] == 128 and "min_blocks_per_mp=4 leaves 128 of the 255" in note
    assert int(re.search(r"(\d+) of the spill's loads and stores lie in a loop", note)[1]) > 20
    (straight,) = compiled(write_file(SPILLING.replace("cutlass.range({steps})", "cutlass.range_constexpr(1)")), arch)[
        "kernels"
    ]
    assert straight["spill_store_bytes"] and any("no loop has any of them" in note for note in straight["notes"])
