"""What tests run in a worker of their own: the tools' way to a kernel and its inputs, and baselines without a GPU."""

from dataclasses import dataclass
from pathlib import Path

from cutesmith.judge.one_process import load_confined
from cutesmith.judge.reference_side.confined_problem import ConfinedProblem
from cutesmith.recording.facade import cuda_as_cpu
from cutesmith.sandbox.messages import Request
from cutesmith.timing.timed import TimedBaselines


@dataclass(frozen=True)
class CallKernel(Request[float]):
    """Call a kernel on the inputs of a problem; the reply is the sum of what it returns."""

    path: Path
    problem: Path
    confined: bool


class OneProcess:
    """Answers `CallKernel`."""

    def handle(self, request):
        inputs, kernel_fn = load_confined(request.path, request.problem, confined=request.confined)
        return float(kernel_fn(*inputs).sum())


def one_process():
    """The entry of a process with a problem and a kernel."""
    return OneProcess


class PosingBaselines(ConfinedProblem):
    """The confined baselines of a benchmark, on tensors that pose as CUDA's."""

    def __init__(self):
        self.posing = cuda_as_cpu()
        self.posing.__enter__()
        super().__init__(TimedBaselines)


def posing_baselines():
    """The entry of their process."""
    return PosingBaselines
