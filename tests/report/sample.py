"""A generator's result as the real verdict types make it, with hostile text wherever a kernel may put some."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from cutesmith.verdicts import (
    ArchReport,
    BenchmarkVerdict,
    CaseReport,
    CompileVerdict,
    ExitCode,
    Finding,
    GenerateVerdict,
    KernelReport,
    LintVerdict,
    Mechanism,
    OutputError,
    Timing,
    VerifyVerdict,
    Violation,
)

HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>'\"&"
SOURCE = f'''"""A kernel {HOSTILE.replace('"', "'")}."""

import torch

TEXT = "{HOSTILE.replace('"', "'")}"  # </li><script>alert(3)</script>


@torch.no_grad
def kernel_fn(x):
    """Two
    lines."""
    return x + 0x10 if x is not None else 1.5e-3
'''


def _kernel(threads: int, registers: int) -> KernelReport:
    return KernelReport(
        name=f"softmax_kernel_{HOSTILE}",
        arch="sm_90a",
        registers=registers,
        stack_bytes=0,
        spill_store_bytes=8 if registers > 100 else 0,
        spill_load_bytes=0,
        static_smem_bytes=1024,
        dynamic_smem_bytes=4 * threads,
        grid=(32768, 1, 1),
        block=(threads, 1, 1),
        cluster=(1, 1, 1),
        occupancy_blocks=8,
        occupancy_percent=93.75,
        occupancy_limit="registers",
        widest_global_load_bits=128,
        widest_global_store_bits=128,
    )


def compiled(threads: int, registers: int) -> CompileVerdict:
    """What a kernel compiles to; one of more than 100 registers spills."""
    arch = ArchReport(
        arch="sm_90a", exit_code=ExitCode.PASSED, compile_seconds=0.4, kernels=(_kernel(threads, registers),)
    )
    return CompileVerdict(
        exit_code=ExitCode.PASSED, summary="compiled for sm_90a; nothing was executed", path="kernel.py", archs=(arch,)
    )


def _timing(name: str, median: float, spread: float) -> Timing:
    draw = random.Random(name)
    samples = tuple(median + abs(draw.gauss(0, spread)) for _ in range(200))
    return Timing(
        name=name,
        samples_us=samples,
        median_us=median,
        q1_us=median - spread / 2,
        q3_us=median + spread,
        host_us=6.4,
        bytes_per_second=536_870_912 / (median * 1e-6),
    )


def _case(name: str, passed: bool = True) -> CaseReport:
    error = OutputError(
        output=0,
        dtype="bfloat16",
        shape=(33, 1000),
        max_abs=3.1e-3,
        max_rel=4e-3,
        max_ulp=0.51,
        mismatches=0 if passed else 17,
        elements=33000,
        worst_index=(3, 5),
    )
    case = CaseReport(name=name, inputs="bfloat16[33, 1000]", outputs=(error,))
    text = f"17 of 33000 elements differ {HOSTILE}"
    return case if passed else case.violated(Violation(None, Mechanism.FLOAT64_REFERENCE, text, reject=False))


def benchmark() -> BenchmarkVerdict:
    """Timings of one candidate and three baselines."""
    timings = (
        _timing("kernel_fn", 131.2, 0.9),
        _timing("eager", 418.0, 6.0),
        _timing("torch.compile", 249.1, 2.0),
        _timing("quack.softmax of a long library name", 133.9, 1.1),
    )
    return BenchmarkVerdict(
        exit_code=ExitCode.PASSED,
        summary="131.2 µs",
        path="kernel.py",
        device="NVIDIA H200",
        inputs="bfloat16[32768, 4096]",
        timings=timings,
        floor_us=124.9,
        floor_kind="bytes",
        floor_percent=95.2,
        algorithmic_bytes=536_870_912,
        algorithmic_flops=671_088_640,
        copy_bytes_per_second=4.27e12,
        speedups={timing.name: timing.median_us / 131.2 for timing in timings[1:]},
    )


ENVIRONMENT = {"GPU": "NVIDIA H200", "torch": "2.13.0", "nvidia-cutlass-dsl": HOSTILE}


def result(**changes: Any) -> GenerateVerdict:
    """The verdict on a verified kernel, hostile text included."""
    lint = LintVerdict(
        exit_code=ExitCode.PASSED,
        summary="1 note",
        path="kernel.py",
        findings=(Finding(rule="K104", severity="note", line=3, column=0, message=HOSTILE, fix="none"),),
    )
    verify = VerifyVerdict(
        exit_code=ExitCode.PASSED,
        summary="4 cases agree with the float64 reference",
        path="kernel.py",
        ran_on="gpu",
        device="NVIDIA H200",
        cases=tuple(_case(name) for name in ("get_inputs, seed 1", "set 1", "set 2", HOSTILE)),
        log_tail=HOSTILE,
    )
    tried = tuple(
        {
            "configuration": {"threads": threads, "rows_per_block": 1, "vector_bytes": 16},
            "compile": compiled(threads, registers).to_dict(),
            "median_us": median,
            "status": status,
            "summary": summary,
            "chosen": threads == 256,
        }
        for threads, registers, median, status, summary in (
            (128, 168, 140.1, "compiled", "not verified: slower"),
            (256, 90, 131.2, "verified", ""),
            (512, 64, 133.0, "verified", ""),
            (1024, 40, None, "wrong_result", f"17 of 33000 elements differ {HOSTILE}"),
        )
    )
    verdict = GenerateVerdict(
        exit_code=ExitCode.PASSED,
        summary="softmax.py: verified, 131.2 µs, 95 % of the floor",
        problem="tasks/level1/softmax.py",
        kernel="out/kernel.py",
        pattern="rows",
        configuration={"threads": 256, "rows_per_block": 1, "vector_bytes": 16},
        tried=tried,
        stages=(lint.to_dict(), compiled(256, 90).to_dict(), verify.to_dict(), benchmark().to_dict()),
        state="verified",
    )
    return replace(verdict, **changes)
