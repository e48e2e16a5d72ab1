#!/usr/bin/env python3
"""Scripts and tests that others wrote, unmodified, on the emulated GPU: a table of script, arguments, result, seconds.

    python evals/studies/emulator/foreign_scripts.py --cutlass DIR --quack DIR --out evals/results/emulator/scripts
    python evals/studies/emulator/foreign_scripts.py --cutlass DIR --out /tmp/table --only 'ampere/*'
    python evals/studies/emulator/foreign_scripts.py --flash-attention DIR --out evals/results/emulator/scripts
    python evals/studies/emulator/foreign_scripts.py --operators --out evals/results/emulator/scripts

DIR of CUTLASS is a checkout of github.com/NVIDIA/cutlass (BSD-3), that of QuACK one of github.com/Dao-AILab/quack
(Apache-2.0), whose `tests` run on the installed package, that of FlashAttention one of
github.com/Dao-AILab/flash-attention (BSD-3), whose `flash_attn/cute` flash_attention.py calls. None is part of this
repository. Every row is one `cutesmith emulate --script`. Writes table.md and table.json, in which rows of before stay
that are not run again; each row names the commit of its checkout, or the installed package. CPU seconds are those of
all processes of a row. Exit code: 1 where a row did not end as it is expected to.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import blackwell_scripts  # noqa: E402

from cutesmith.verdicts import ExitCode  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = Path("examples/python/CuTeDSL")
LONGEST_REASON = 220


@dataclass(frozen=True)
class Row:
    """One script with its arguments; `why` says what it lacks where it is not expected to pass."""

    name: str
    arch: str
    words: str
    why: str = ""


@dataclass(frozen=True)
class Result:
    """How a row ended."""

    name: str
    arch: str
    words: str
    exit_code: int
    status: str
    summary: str
    launches: int
    findings: int
    seconds: float
    cpu_seconds: float
    why: str
    source: str


GEMM = "--ab_dtype Float16 --c_dtype Float16 --acc_dtype Float32 --a_major m --b_major n --c_major n"
ELECTED = "a finding: the lanes of a warp read, and its elected lane alone releases, with no bar.warp.sync between"
FOUND = {
    "warp_named_barrier": ELECTED,
    "pipeline_software_fill": ELECTED,
    "tma/tma_pipeline_warpspec": ELECTED,
    "tma/tma_pipeline_count2": ELECTED,
    "tma/tma_pipeline_single_warp": "a finding: the next load follows the reads of four warps with no barrier between",
    "tma/tma_store": "a finding: each of four warps issues the same TMA store",
    "tma/tma_load_store": "a finding: each warp issues the same TMA store",
    "mapa": "a finding: a block reads its neighbour's shared memory, and no barrier keeps that block from ending",
    "tma/tma_multicast": "needs sm_100a: the DSL does not compile it for sm_90a",
    "tutorial/05_minimal_tensor_mma": "needs sm_100a: the DSL does not compile it for sm_90a",
    "tutorial/06_softmax": "a finding: sums overwrite the maxima with no barrier after they were read",
}
"""Why a primitive's example does not pass, each looked up in its source."""
UNROUNDED = "compares f16 bit by bit with cuBLAS; here PyTorch's CPU is the reference, which sums in another order"


def pytest_row(name: str, file: str, which: str, why: str = "", arch: str = "sm_90a") -> Row:
    """Some tests of one of QuACK's files (`pytest -k`)."""
    return Row(f"quack/{name}", arch, f"-m pytest -q {file} -k {shlex.quote(which)}", why)


CUTLASS = (
    Row("ampere/elementwise_add 64x512", "sm_80", "cute/ampere/kernel/elementwise/elementwise_add.py --M 64 --N 512"),
    Row("ampere/elementwise_add 63x500", "sm_80", "cute/ampere/kernel/elementwise/elementwise_add.py --M 63 --N 500"),
    Row("ampere/elementwise_apply", "sm_80", "cute/ampere/kernel/elementwise/elementwise_apply.py --M 64 --N 256"),
    Row(
        "ampere/elementwise_apply leaky_relu",
        "sm_80",
        "cute/ampere/kernel/elementwise/elementwise_apply.py --M 64 --N 256 --op leaky_relu",
    ),
    Row("ampere/elementwise_add_autotune", "sm_80", "cute/ampere/tutorial/elementwise_add_autotune.py --M 64 --N 512"),
    Row("ampere/sgemm", "sm_80", "cute/ampere/kernel/dense_gemm/sgemm.py --mnk 128,128,32"),
    Row("ampere/sgemm odd", "sm_80", "cute/ampere/kernel/dense_gemm/sgemm.py --mnk 200,136,40 --a_major k --b_major k"),
    Row(
        "ampere/tensorop_gemm",
        "sm_80",
        f"cute/ampere/kernel/dense_gemm/tensorop_gemm.py --mnkl 128,128,64,1 --atom_layout_mnk 2,2,1 {GEMM}",
    ),
    Row(
        "ampere/tensorop_gemm batched",
        "sm_80",
        f"cute/ampere/kernel/dense_gemm/tensorop_gemm.py --mnkl 256,128,96,2 --atom_layout_mnk 2,2,1 {GEMM}",
    ),
    Row(
        "ampere/flash_attention_v2",
        "sm_80",
        "cute/ampere/kernel/attention/flash_attention_v2.py --dtype Float16 --head_dim 64 --batch_size 1 "
        "--seqlen_q 128 --seqlen_k 128 --num_head 2",
    ),
    Row(
        "ampere/flash_attention_v2 causal",
        "sm_80",
        "cute/ampere/kernel/attention/flash_attention_v2.py --dtype BFloat16 --head_dim 64 --batch_size 1 "
        "--seqlen_q 128 --seqlen_k 128 --num_head 2 --is_causal",
    ),
    Row(
        "ampere/hstu_attention",
        "sm_80",
        "cute/ampere/kernel/attention/hstu_attention.py --batch_size 1 --num_head 1 --seqlen_q 128 --seqlen_kv 128 "
        "--head_dim 64",
    ),
    Row("ampere/memcpy_simt_universal_copy", "sm_80", "cute_ext/ampere/memcpy_simt_universal_copy.py"),
    Row("tutorial/call_from_jit", "sm_80", "dsl_tutorials/call_from_jit.py", UNROUNDED),
    Row("tutorial/call_bypass_dlpack", "sm_80", "dsl_tutorials/call_bypass_dlpack.py", UNROUNDED),
    Row("tutorial/torch_fake_tensor", "sm_80", "dsl_tutorials/torch_fake_tensor.py", "compiles only"),
    Row("tutorial/dataclass_immutable", "sm_80", "dsl_tutorials/dataclass_immutable.py"),
    Row(
        "tutorial/cooperative_launch",
        "sm_90a",
        "dsl_tutorials/cooperative_launch.py",
        "expects the refusal of a launch as the DSL's exception, not as ours",
    ),
    Row("tutorial/dynamic_smem_size", "sm_80", "dsl_tutorials/dynamic_smem_size.py"),
    Row("tutorial/inline_ptx", "sm_80", "dsl_tutorials/inline_ptx.py"),
    Row("tutorial/smem_allocator", "sm_80", "dsl_tutorials/smem_allocator.py"),
    Row("tutorial/print_latex", "sm_80", "dsl_tutorials/print_latex.py", "prints layouts only"),
    Row("tutorial/programmatic_dependent_launch", "sm_90a", "dsl_tutorials/programmatic_dependent_launch.py"),
    Row(
        "tvm_ffi/compile_with_fake_tensor",
        "sm_80",
        "dsl_tutorials/tvm_ffi/compile_with_fake_tensor.py",
        "compiles only",
    ),
    Row("tvm_ffi/jit_and_use_in_torch", "sm_80", "dsl_tutorials/tvm_ffi/jit_and_use_in_torch.py"),
    Row(
        "tvm_ffi/ampere_gemm_with_fake_tensor",
        "sm_80",
        "dsl_tutorials/tvm_ffi/ampere_gemm_with_fake_tensor.py",
        UNROUNDED,
    ),
    Row("tvm_ffi/error_reporting", "sm_80", "dsl_tutorials/tvm_ffi/error_reporting.py", "ends in its own ValueError"),
    Row("tvm_ffi/aot_export", "sm_80", "dsl_tutorials/tvm_ffi/aot_export.py", "writes into its own folder"),
    Row("tvm_ffi/fp4_x2_tensor", "sm_100a", "cute/tvm_ffi/fp4_x2_tensor.py"),
    Row("jax/elementwise_apply", "sm_80", "dsl_tutorials/jax/elementwise_apply_example.py", "needs jax"),
    *(
        Row(f"primitives/{name}", "sm_90a", f"experimental/primitives/{name}.py", FOUND.get(name, ""))
        for name in (
            "shfl_sync vote_sync elect_sync redux_sync bar_warp_sync warp_named_barrier barrier_cta_sync "
            "barrier_cta_red basic_types red mapa ldmatrix_stmatrix mbarrier mbarrier_lifecycle cp_async_shared_global "
            "cp_async_shared_global_swizzled cp_async_mbarrier_arrive_cta cp_async_mbarrier_arrive_cluster "
            "async_pipeline pipeline_software_fill cp_async_bulk cp_async_bulk_prefetch "
            "tutorial/01_hello_world tutorial/02_naive_gemm tutorial/03_gemm_tiled_smem tutorial/04_tma_load "
            "tutorial/05_minimal_tensor_mma tutorial/06_softmax tutorial/07_vectorized_array tutorial/09_tma_4d_to_2d "
            "reduction/thread_vector_reduce reduction/warp_vector_reduce reduction/block_smem_reduce "
            "reduction/cluster_smem_reduce tma/tma_store tma/tma_load_store tma/tma_1cta_mbarrier "
            "tma/tma_swizzle_modes tma/tma_multicast tma/tma_pipeline_single_warp tma/tma_pipeline_warpspec "
            "tma/tma_pipeline_pingpong tma/tma_pipeline_count2 tma/tma_load_to_ldmatrix tma/tma_tensormap_replace"
        ).split()
    ),
    Row("hopper/dense_gemm", "sm_90a", "cute/hopper/kernel/dense_gemm/dense_gemm.py --mnkl 128,128,128,1"),
    Row(
        "hopper/dense_gemm cluster 2x1",
        "sm_90a",
        "cute/hopper/kernel/dense_gemm/dense_gemm.py --mnkl 256,128,128,1 --cluster_shape_mn 2,1",
    ),
    Row(
        "hopper/dense_gemm_persistent",
        "sm_90a",
        "cute/hopper/kernel/dense_gemm/dense_gemm_persistent.py --mnkl 128,256,128,1",
    ),
    Row(
        "hopper/dense_gemm_fp8_2xacc",
        "sm_90a",
        "cute/hopper/kernel/dense_gemm/dense_gemm_fp8_2xacc.py --mnkl 128,256,256,1",
    ),
    Row(
        "hopper/grouped_gemm",
        "sm_90a",
        "cute/hopper/kernel/grouped_gemm/grouped_gemm.py --num_groups 2 "
        "--problem_sizes_mnkl (128,128,128,1),(128,256,64,1)",
    ),
    Row("hopper/fmha", "sm_90a", "cute/hopper/kernel/attention/fmha.py --q_shape 1,128,1,64 --k_shape 1,128,1,64"),
    Row(
        "hopper/fmha causal",
        "sm_90a",
        "cute/hopper/kernel/attention/fmha.py --q_shape 1,128,1,64 --k_shape 1,128,1,64 --is_causal",
    ),
    Row("hopper/cta_norm layer", "sm_90a", "cute/hopper/kernel/cta_norm/cta_norm.py --M 16 --N 1024"),
    Row("hopper/cta_norm rms", "sm_90a", "cute/hopper/kernel/cta_norm/cta_norm.py --M 16 --N 1024 --norm_type rms"),
    *(Row(f"blackwell/{name}", *rest) for name, *rest in blackwell_scripts.ROWS),
)

QUACK = (
    pytest_row("softmax", "tests/test_softmax.py", "False and -1- and (192 or 1128 or 4096)"),
    pytest_row("softmax extreme values", "tests/test_softmax.py", "False and (extreme or translation)"),
    pytest_row("rmsnorm", "tests/test_rmsnorm.py", "forward_backward and False and -1- and (192 or 760)"),
    pytest_row(
        "rmsnorm with an offset", "tests/test_rmsnorm.py", "(offset and False and -1- and 1024) or noncontiguous"
    ),
    pytest_row(
        "layernorm",
        "tests/test_layernorm.py",
        "(256 and (-1- or -37-)) or not forward_backward",
        "one test allows 1e-4: the kernel is 7.5e-5 from float64, its reference in PyTorch's float32 on a CPU 1.3e-4",
    ),
    pytest_row(
        "cross_entropy",
        "tests/test_cross_entropy.py",
        "False and -1- and 192",
        "a finding: in place, a lane reads the target's logit and another overwrites it after shuffles alone",
    ),
    pytest_row(
        "cross_entropy special cases", "tests/test_cross_entropy.py", "False and (extreme or edge or stability)"
    ),
    pytest_row("topk", "tests/test_topk.py", "False and -1- and 64"),
    pytest_row(
        "rotary",
        "tests/test_rotary.py",
        "(func and not varlen and dtype0 and False-False) or empty or vector",
        "a finding: lanes load elements beyond half of a row, which another lane writes, and throw them away",
    ),
    Row("quack/rounding", "sm_90a", "-m pytest -q tests/test_rounding.py"),
    Row("quack/fast_math", "sm_90a", "-m pytest -q tests/test_fast_math.py"),
    Row("quack/hadamard", "sm_90a", "-m pytest -q tests/transform/test_hadamard.py"),
    Row("quack/dsl", "sm_90a", "-m pytest -q tests/dsl"),
    Row("quack/barrier", "sm_90a", "-m pytest -q tests/sync"),
    Row("quack/namedtuple", "sm_90a", "-m pytest -q tests/test_namedtuple_tvm_ffi.py"),
    Row("quack/torch_library_op", "sm_90a", "-m pytest -q tests/test_torch_library_op.py", "launches no kernel"),
    pytest_row(
        "linear_cross_entropy",
        "tests/test_linear_cross_entropy.py",
        "batched or (ignore_index and dtype0)",
        "the finding of cross_entropy",
    ),
    pytest_row("gemm, two seeds of rounding", "tests/test_linear.py", "test_gemm_sr_different_seeds"),
    pytest_row("gemm, functional", "tests/test_gemm_functional.py", "test_gemm_functional_parity or fakes"),
    pytest_row("gemm with add", "tests/test_gemm_functional.py", "add_functional_parity"),
    pytest_row("gemm, split k", "tests/test_gemm_split_k.py", "one_matches_baseline or larger_than_k_tiles"),
    pytest_row("sm_100 gemm, tile of 160", "tests/test_linear.py", "sm100_unaligned and 128-1-160", arch="sm_100a"),
    Row("quack/distributed_gemm", "sm_90a", "-m pytest -q tests/test_distributed_gemm.py", "needs two GPUs"),
)

FLASH_ATTENTION = tuple(
    Row(f"flash_attn/{name}", arch, f"flash_attention.py {words}")
    for name, arch, words in (
        ("forward 256x64", "sm_90a", "256 1 1 64"),
        ("forward causal 200x128, 2 heads of 1", "sm_90a", "200 2 1 128 causal"),
        ("backward 256x64", "sm_90a", "256 1 1 64 backward"),
        ("backward causal 512x64", "sm_90a", "512 1 1 64 causal backward"),
        ("sm_100 forward 128x64", "sm_100a", "128 1 1 64"),
        ("sm_100 forward 512x64", "sm_100a", "512 1 1 64"),
        ("sm_100 forward causal 200x128, 2 heads of 1", "sm_100a", "200 2 1 128 causal"),
    )
) + (
    Row(
        "flash_attn/sm_100 backward 256x64",
        "sm_100a",
        "flash_attention.py 256 1 1 64 backward",
        "a finding: nothing waits for the last TMA store of dK and dV unless gradients are deterministic",
    ),
)

OPERATORS = tuple(
    Row(f"operators/{name}", arch, f"operators_gemm.py {words}")
    for name, arch, words in (
        ("gemm sm_90 256x256x128", "sm_90a", "90a 256 256 128"),
        ("gemm sm_100 256x256x128", "sm_100a", "100a 256 256 128"),
        ("gemm sm_100 136x264x72", "sm_100a", "100a 136 264 72"),
    )
)


def main() -> int:
    """Run the rows that are there; returns the exit code."""
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    kept = {result.name: result for result in read(options.out)}
    asked = rows(options)
    for row, folder, source in asked:
        kept[row.name] = result = run(row, folder, source, options.timeout)
        print(f"{result.status:12} {result.seconds:6.1f} s  {row.name}", file=sys.stderr)
        write(
            [kept[known.name] for known in (*CUTLASS, *QUACK, *FLASH_ATTENTION, *OPERATORS) if known.name in kept],
            options.out,
        )
    return int(any(kept[row.name].exit_code and not row.why for row, *_ in asked))


def read(out: Path) -> list[Result]:
    """The rows of an earlier table: those that are not run again stay in it."""
    table = out / "table.json"
    return [Result(**row) for row in json.loads(table.read_text())] if table.is_file() else []


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cutlass", type=Path, metavar="DIR", help="a checkout of CUTLASS")
    parser.add_argument("--quack", type=Path, metavar="DIR", help="a checkout of QuACK")
    parser.add_argument("--flash-attention", type=Path, metavar="DIR", help="a checkout of FlashAttention")
    parser.add_argument("--operators", action="store_true", help="GEMMs of the installed nvidia-cutlass-operators")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for table.md and table.json")
    parser.add_argument("--only", nargs="*", default=["*"], metavar="GLOB", help="rows by name, such as 'hopper/*'")
    parser.add_argument("--timeout", type=float, default=240.0, metavar="S", help="seconds a row (default: 240)")
    return parser.parse_args()


def rows(options: argparse.Namespace) -> list[tuple[Row, Path, str]]:
    """The rows that are asked for, each with the folder that it is run in and the source of its code.

    QuACK's tests are copied away from its sources, so that the installed package is what they import.
    """
    found = []
    if options.cutlass:
        source = f"NVIDIA/cutlass {commit(options.cutlass)}"
        found += [(row, options.cutlass.resolve() / EXAMPLES, source) for row in CUTLASS]
    if options.quack:
        alone = Path(tempfile.mkdtemp(prefix="quack-tests-"))
        shutil.copytree(options.quack / "tests", alone / "tests")
        shutil.copy(options.quack / "pyproject.toml", alone)
        source = f"tests of Dao-AILab/quack {commit(options.quack)} on quack-kernels {version('quack-kernels')}"
        found += [(row, alone, source) for row in QUACK]
    if options.flash_attention:
        alone, package = Path(tempfile.mkdtemp(prefix="flash-attention-")), Path("flash_attn/cute")
        shutil.copytree(options.flash_attention / package, alone / package)
        shutil.copy(Path(__file__).parent / "flash_attention.py", alone)
        source = f"Dao-AILab/flash-attention {commit(options.flash_attention)}"
        found += [(row, alone, source) for row in FLASH_ATTENTION]
    if options.operators:
        source = f"nvidia-cutlass-operators {version('nvidia-cutlass-operators')}"
        found += [(row, Path(__file__).parent, source) for row in OPERATORS]
    return [known for known in found if any(fnmatch(known[0].name, glob) for glob in options.only)]


def commit(checkout: Path) -> str:
    """The commit that a checkout is at."""
    asked = ["git", "-C", str(checkout), "rev-parse", "--short=9", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def cpu_seconds() -> float:
    """CPU seconds, user and system, of all child processes that have ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(row: Row, folder: Path, source: str, timeout: float) -> Result:
    """One row as a child process; its verdict's JSON is what it prints."""
    command = [sys.executable, "-m", "cutesmith", "emulate", "--json", "--arch", row.arch, "--timeout", str(timeout)]
    begin, used = time.monotonic(), cpu_seconds()
    done = subprocess.run(
        [*command, "--script", *shlex.split(row.words)],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": tempfile.gettempdir()},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    verdict = json.loads(done.stdout)
    kernels, faults = verdict.get("kernels", []), verdict.get("faults", [])
    return Result(
        name=row.name,
        arch=row.arch,
        words=row.words,
        exit_code=done.returncode,
        status=verdict["status"],
        summary=re.sub(r"(?<![\w.])/[\w./-]+/", "", verdict["summary"]),  # without this machine's folders
        launches=sum(kernel["launches"] for kernel in kernels),
        findings=len(faults),
        seconds=round(time.monotonic() - begin, 1),
        cpu_seconds=round(cpu_seconds() - used, 1),
        why=row.why,
        source=source,
    )


def write(results: list[Result], out: Path) -> None:
    """table.md for people, table.json with all fields."""
    (out / "table.json").write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    passed = sum(result.exit_code == ExitCode.PASSED for result in results)
    sources = Counter(result.source for result in results)
    lines = [
        "# Other people's scripts on the emulated GPU",
        "",
        f"{passed} of {len(results)} end without an error and without findings. "
        "`evals/studies/emulator/foreign_scripts.py` made this table; seconds include the start of the process and "
        "compilation, on a shared machine; CPU seconds are those of all its processes.",
        "",
        *(f"- {count} row{'s' * (count > 1)}: {source}" for source, count in sources.items()),
        "",
        "| script | arguments | arch | result | launches | findings | seconds | CPU s | reason |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        reason = "" if not result.exit_code else result.why or result.summary
        reason = " ".join(reason.split()).replace("|", "\\|")[:LONGEST_REASON]
        words = " ".join(result.words.split()[1:])
        words = f"`{words}`".replace("|", "\\|") if words else ""
        lines.append(
            f"| {result.name} | {words} | {result.arch} | {result.status} | {result.launches} | {result.findings} | "
            f"{result.seconds} | {result.cpu_seconds} | {reason} |"
        )
    (out / "table.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
