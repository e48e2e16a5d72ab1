"""What tests run in a worker of their own: the tools' way to a kernel and its inputs, and baselines without a GPU."""

from pathlib import Path

from cutesmith.judge.one_process import load_confined
from cutesmith.recording.facade import cuda_as_cpu
from cutesmith.timing.timed import confined_baseline_handler


def one_process():
    """{"path", "problem", "confined"}: the inputs of a problem, and what the kernel makes of them."""

    def called(request):
        inputs, kernel_fn = load_confined(Path(request["path"]), Path(request["problem"]), confined=request["confined"])
        return {"sum": float(kernel_fn(*inputs).sum())}

    return called


_POSING = []


def baselines():
    """The confined baselines of a benchmark, on tensors that pose as CUDA's."""
    _POSING.append(cuda_as_cpu())
    _POSING[-1].__enter__()
    return confined_baseline_handler()
