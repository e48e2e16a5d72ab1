"""What stands in, while a script runs, for what neither a CPU nor the emulated GPU has.

Time is never measured: helpers run the kernel once, and give NaN. `torch.compile` runs the function as it is written.
NCCL, CUDA's libraries and further parts of `torch.cuda` refuse by name (UnavailableError, exit code 7).
"""

from __future__ import annotations

import ctypes
import functools
import math
import re
from collections.abc import Callable
from typing import Any

import torch

from cutesmith.errors import UnavailableError
from cutesmith.profiling.scripts.scaled_products import with_block_scales, with_out_dtype
from cutesmith.profiling.scripts.triton_stand_in import stand_in_for_triton
from cutesmith.recording.autograd import entered
from cutesmith.recording.claims import is_cuda
from cutesmith.recording.facade import Facade
from cutesmith.recording.patches import Patches
from cutesmith.recording.torch_cuda import Event, cuda_refusals, refused

_CUDA_LIBRARY = re.compile(
    r"lib(cuda|cudart|cublas\w*|cudnn\w*|nccl|nvrtc|nvJitLink|cusparse\w*|cusolver\w*|cufft\w*|curand|cupti|nvshmem\w*)\.so"
)
_ON_A_GPU = "Run what needs it on a GPU."
COMPILED = "torch.compile ran functions as they are written"
TIMED = "nothing was timed: benchmark helpers ran the kernel once and gave NaN"


def script_stand_ins(patches: Patches, facade: Facade, notes: list[str]) -> None:
    """Replace them; what a reader of the result should know is added to `notes`."""

    def note(text: str) -> None:
        if text not in notes:
            notes.append(text)

    patches.set_existing(torch.cuda, cuda_refusals())
    patches.set_existing(torch.cuda.nvtx, dict.fromkeys(("range_push", "range_pop", "range_start", "mark"), _nothing))
    patches.set(torch.cuda.nvtx, "range_end", _nothing)
    patches.set(torch, "compile", functools.partial(_as_written, note))
    patches.set(torch, "_scaled_mm", with_block_scales(torch._scaled_mm))
    for name in ("mm", "bmm", "addmm", "baddbmm"):
        patches.set(torch, name, with_out_dtype(getattr(torch, name)))
    patches.set(torch.library, "custom_op", _on_every_device(torch.library.custom_op, facade))
    patches.set(torch.library, "opcheck", _without_traces(torch.library.opcheck))
    patches.set(ctypes.CDLL, "__init__", _without_cuda(ctypes.CDLL.__init__))
    patches.set_existing(torch.cuda.nccl, dict.fromkeys(torch.cuda.nccl.__all__, _no_processes("torch.cuda.nccl")))
    patches.set(torch.cuda.nccl, "version", _no_processes("torch.cuda.nccl.version"))
    if torch.distributed.is_available():
        patches.set(torch.distributed, "init_process_group", _no_processes("torch.distributed.init_process_group"))
    _time_nothing(patches, note)
    stand_in_for_triton(patches)


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _as_written(note: Callable[[str], None], model: Any = None, **options: Any) -> Any:
    """`torch.compile`, with or without arguments of its own."""
    note(COMPILED)
    return model if model is not None else lambda function: function


def _on_every_device(original: Callable[..., Any], facade: Facade) -> Callable[..., Any]:
    """`torch.library.custom_op` whose CUDA implementations serve tensors that pose, and see the facade."""

    def custom_op(name: str, fn: Any = None, /, *, device_types: Any = None, **named: Any) -> Any:
        if fn is None:
            return lambda function: custom_op(name, function, device_types=device_types, **named)

        @functools.wraps(fn)
        def within(*args: Any, **kwargs: Any) -> Any:
            with entered(facade):
                return fn(*args, **kwargs)

        kinds = (device_types,) if isinstance(device_types, str) else device_types or ()
        devices = None if any(is_cuda(kind) for kind in kinds) else device_types
        return original(name, within, device_types=devices, **named)

    return custom_op


def _without_traces(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.library.opcheck`; its traces make tensors of a CUDA that PyTorch may lack, which ends the process."""

    def opcheck(*args: Any, **named: Any) -> Any:
        from torch.testing._internal.optests import generate_tests

        with Patches() as patches:
            patches.set(generate_tests, "aot_autograd_check", refused("opcheck with test_aot_dispatch"))
            return original(*args, **named)

    return opcheck


def _without_cuda(original: Callable[..., None]) -> Callable[..., None]:
    def load(library: Any, name: Any = None, *args: Any, **kwargs: Any) -> None:
        if found := _CUDA_LIBRARY.search(str(name)):
            raise UnavailableError(f"the script needs CUDA's {found[0]}", hint=_ON_A_GPU)
        original(library, name, *args, **kwargs)

    return load


def _no_processes(name: str) -> Callable[..., None]:
    def refuse(*args: Any, **kwargs: Any) -> None:
        hint = "The emulated GPU is one GPU; NCCL and Gloo need several processes."
        raise UnavailableError(f"the script needs NCCL: `{name}`", hint=hint)

    return refuse


def _time_nothing(patches: Patches, note: Callable[[str], None]) -> None:
    import cutlass.cute.testing
    import cutlass.testing
    from cuda.bindings import driver, runtime

    def run_once(kernel: Any, *, kernel_arguments: Any = None, workspace_generator: Any = None, **unused: Any) -> float:
        note(TIMED)
        arguments = kernel_arguments if workspace_generator is None else workspace_generator()
        kernel(*arguments.args, **arguments.kwargs)
        return math.nan

    def first_wins(
        kernel: Any,
        *args: Any,
        warmup_iterations: int,
        iterations: int,
        use_cold_l2: bool,
        print_verbose: bool,
        current_stream: Any = None,
        **named: Any,
    ) -> float:
        note(TIMED)
        kernel(*args, **named)
        return 0.0  # it is only compared

    def elapsed(self: Any, other: Any) -> float:
        note(TIMED)
        return math.nan

    for module in (cutlass.testing, cutlass.cute.testing):
        patches.set_existing(module, {"benchmark": run_once, "_benchmark_for_autotune": first_wins})
    patches.set(Event, "elapsed_time", elapsed)
    patches.set(driver, "cuEventElapsedTime", lambda *events: (driver.CUresult.CUDA_SUCCESS, math.nan))
    patches.set(runtime, "cudaEventElapsedTime", lambda *events: (runtime.cudaError_t.cudaSuccess, math.nan))
