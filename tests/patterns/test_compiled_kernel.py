"""A file that the compile stage took is not compiled again where nothing is executed; its host code is judged still."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cutesmith.judge.candidate_side.kernel_file import candidate_code, load_kernel
from cutesmith.judge.candidate_side.requests import Load, Loaded, Record, Recorded
from cutesmith.judge.candidate_side.trial import Trial
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.surroundings import Surroundings
from cutesmith.judge.transfer.requests import Start, TensorLayout
from cutesmith.patterns.generation.compiled_kernel import verify_compiled
from cutesmith.patterns.generation.host_code import HostCode
from cutesmith.verdicts import ExitCode, Rule

KERNEL = """\
import cutlass
import cutlass.cute as cute
import torch


@cute.kernel
def add_one(x: cute.Tensor, y: cute.Tensor):
    thread = cute.arch.thread_idx()[0]
    y[thread] = x[thread] + cutlass.Float32(1)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    add_one(x, y).launch(grid=[1, 1, 1], block=[64, 1, 1])


FAKE = cute.runtime.make_fake_compact_tensor(cutlass.Float32, (64,))
compiled = []


def reference_fn(x):
    return x + 1


def get_inputs():
    return [torch.ones(64, device="cuda")]


def kernel_fn(x):
    if not compiled:
        compiled.append(cute.compile(launch, FAKE, FAKE, options="--enable-tvm-ffi"))
    y = torch.empty_like(x)
    compiled[0](x, y)
    return y
"""
OPTIONS = VerifyOptions(arch="sm_90a")
VECTOR = TensorLayout("float32", (64,), (1,), 0)


class InProcess:
    """Loads a file without confining the test's process."""

    def load(self, request: Load) -> Loaded:
        self.path, self.surroundings = Path(request.path), Surroundings()
        with candidate_code(self.path):
            self.kernel_fn = load_kernel(self.path)
        return Loaded({}, [])


class JudgedHostCode(InProcess, HostCode):
    pass


class JudgedWhole(InProcess, Trial):
    pass


@pytest.mark.parametrize(("side", "compilations"), [(JudgedHostCode, 0), (JudgedWhole, 1)])
def test_the_host_code_of_a_compiled_file_is_run_without_compiling(
    side: type[Trial], compilations: int, write_file: Callable[..., Path]
) -> None:
    candidate, path = side(), write_file(KERNEL)
    with candidate.exits:
        candidate.handle(Start("fake", "sm_90a"))
        candidate.handle(Load(str(path)))
        told: list[Recorded] = [candidate.handle(Record([VECTOR])) for _ in range(2)]
        assert len(candidate.session.modules) == compilations
        assert candidate.session.calls == 1
    assert [len(each.launches) for each in told] == [1, 1]
    assert told[0].outputs[0].shape == (64,)


@pytest.mark.slow
def test_what_the_host_code_returns_is_judged(write_file: Callable[..., Path]) -> None:
    path = write_file(KERNEL)
    verdict = verify_compiled(path, KERNEL, OPTIONS)
    assert (verdict.exit_code, verdict.status) == (ExitCode.PASSED, "compiled"), verdict.summary
    wrong = KERNEL.replace("return y\n", "return y[:32]\n")
    path.write_text(wrong)
    verdict = verify_compiled(path, wrong, OPTIONS)
    assert verdict.exit_code == ExitCode.WRONG_RESULT and "shape" in verdict.summary, verdict.summary
    idle = KERNEL.replace("    compiled[0](x, y)\n", "")
    path.write_text(idle)
    verdict = verify_compiled(path, idle, OPTIONS)
    assert verdict.rule == Rule.W1, verdict.summary


@pytest.mark.slow
def test_another_text_is_compiled_again(write_file: Callable[..., Path]) -> None:
    path = write_file(KERNEL.replace("cutlass.Float32(1)", "no_such_name"))
    verdict = verify_compiled(path, KERNEL, OPTIONS)
    assert not verdict.passed and "no_such_name" in verdict.summary
