"""One call of `kernel_fn` at full size whose launches are written down and not executed: can a GPU start them at all?

Shapes and strides are those of `get_inputs()`, values only those that host code may read (see `reference.full_size`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutesmith.emulator.errors import LaunchRefused
from cutesmith.judge.candidate_side.index_width import indices_wrap, memory_named
from cutesmith.judge.candidate_side.requests import FullSizeCall
from cutesmith.judge.candidate_side.watching import KernelWatch
from cutesmith.judge.transfer import tensors
from cutesmith.judge.transfer.requests import Scalar, TensorFile, TensorLayout

if TYPE_CHECKING:
    from cutesmith.emulator.device import EmulatedDevice

Input = Scalar | TensorFile | TensorLayout
MOST_BYTES = 8 << 30  # of inputs as memory that nothing touches, where host code does not work without


def record_call(
    device: EmulatedDevice, kernel: Callable[..., Any], inputs: Sequence[Input], path: Path
) -> FullSizeCall:
    """Call the kernel of the file `path` on tensors without storage, or with storage where its host code needs one.

    Raises what the kernel raises the second time, and LaunchRefused at once.
    """
    try:
        return _recorded(device, kernel, inputs, path, storage=False)
    except LaunchRefused:
        raise
    except Exception:  # noqa: BLE001 - it may want values, or memory that it keeps from an earlier call
        if (
            size := sum(0 if isinstance(value, Scalar) else tensors.bytes_spanned(value) for value in inputs)
        ) > MOST_BYTES:
            return FullSizeCall(untried=f"host code wants values, and the inputs have {size / 2**30:.1f} GiB")
    try:
        return _recorded(device, kernel, inputs, path, storage=True)
    except MemoryError as error:
        return FullSizeCall(untried=f"this machine has too little memory: {error}")


def _recorded(
    device: EmulatedDevice, kernel: Callable[..., Any], inputs: Sequence[Input], path: Path, *, storage: bool
) -> FullSizeCall:
    watch = KernelWatch("emulator" if storage else "meta", poison=None)
    with device.unexecuted(storage=storage) as launches:
        arguments = [_input(description, storage) for description in inputs]
        with watch:
            outputs = kernel(*arguments)
        device.check()  # what ended a launch reaches host code only as an error number
        named = memory_named(device, arguments, outputs)
    wraps, remark = indices_wrap(device, launches, named, path)
    blocks = tuple(prod(held.launch.grid) for held in launches)
    return FullSizeCall(blocks, dict(watch.computed), wraps=wraps, remark=remark)


def _input(value: Input, storage: bool) -> Any:
    if isinstance(value, Scalar):
        return tensors.read_scalar(value)
    if storage and isinstance(value, TensorFile):
        return tensors.read_tensor(value, "cuda")
    return tensors.empty_like(value)
