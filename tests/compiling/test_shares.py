"""Files of many kernels, compiled by several processes: the report is that of one."""

from __future__ import annotations

import os

import pytest

from cutesmith.compiling.compilation import compile_kernel
from cutesmith.compiling.shares import SHARE, SHARES_A_WORKER, may_be_shared, shares_of
from cutesmith.recording.open_session import session
from cutesmith.verdicts import ExitCode

COUNT = SHARE + 3
HEAD = """\
import cutlass
import cutlass.cute as cute
import torch


@cute.kernel
def scale(x: cute.Tensor, factor: cutlass.Constexpr):
    thread = cute.arch.thread_idx()[0]
    x[thread] = x[thread] * cutlass.Float32(factor)


@cute.jit
def launch_scale(x: cute.Tensor, factor: cutlass.Constexpr, threads: cutlass.Constexpr):
    scale(x, factor).launch(grid=[1, 1, 1], block=[threads, 1, 1])


def reference_fn(x):
    return x


def get_inputs():
    return [torch.ones(64, device="cuda")]


FAKE = cute.runtime.make_fake_compact_tensor(cutlass.Float32, (64,))


def kernel_fn(x):
"""


def many(count: int, last: str = "") -> str:
    """A file whose function compiles and launches so many kernels of growing blocks."""
    lines = [
        f"    cute.compile(launch_scale, FAKE, {n}.0, {n + 1}, options='--enable-tvm-ffi')(x)" for n in range(count)
    ]
    return HEAD + "\n".join([*lines, last or "    return x"]) + "\n"


@pytest.mark.slow
def test_a_file_of_many_kernels_is_compiled_in_shares(write_file, tmp_path):
    told = []
    verdict = compile_kernel(
        write_file(many(COUNT)), ["sm_90a"], keep_dir=tmp_path, progress=lambda *step: told.append(step)
    )
    assert verdict.exit_code == ExitCode.PASSED, verdict.summary
    (report,) = verdict.archs
    assert [kernel.block for kernel in report.kernels] == [(n + 1, 1, 1) for n in range(COUNT)]
    assert len([kind for kind in report.artifacts if kind.startswith("cubin")]) == COUNT
    expected = [("kernels for sm_90a", n + 1, COUNT) for n in range(COUNT)]
    assert sorted(told) == (expected if (os.cpu_count() or 1) > 1 else [])


@pytest.mark.slow
def test_what_fails_in_one_share_is_told_as_it_is_without_shares(write_file):
    verdict = compile_kernel(write_file(many(COUNT, "    cute.compile(launch_scale, FAKE, None, 1)(x)")), ["sm_90a"])
    assert verdict.exit_code == ExitCode.DOES_NOT_COMPILE
    assert verdict.archs[0].error_line == 9  # of the kernel


@pytest.mark.parametrize(("count", "answer"), [(3, False), (4, True)])
def test_a_file_of_few_kernels_is_not_counted(write_file, count, answer):
    assert may_be_shared(write_file(many(count))) is answer


@pytest.mark.parametrize("calls", [0, 1, SHARE, SHARE + 1, 50, 116])
@pytest.mark.parametrize("workers", [2, 16])
def test_shares_are_all_calls_once(calls, workers):
    assert [n for first, end in shares_of(calls, workers) for n in range(first, end)] == list(range(calls))


def test_a_worker_runs_the_host_code_of_a_long_file_few_times():
    assert len(shares_of(116, 2)) == 2 * SHARES_A_WORKER


def test_a_session_compiles_its_share_alone(write_file):
    from cutesmith.problems.loading import load_file

    path = write_file(many(3))
    with session("sm_90a", fake=True, share=(1, 2)) as recorded:
        loaded = load_file(path)
        loaded.kernel_fn(*loaded.get_inputs())
    assert recorded.calls == 3 and [launch.block for launch in recorded.launches] == [(2, 1, 1)]
    assert recorded.left_out == 2 and len(recorded.modules) == 1
