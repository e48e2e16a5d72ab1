"""One call of `kernel_fn` at full size whose launches are written down and not executed: can a GPU start them at all?

Shapes and strides are those of `get_inputs()`, values only those that host code may read (see `reference.full_size`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cutesmith.emulator.errors import LaunchRefused
from cutesmith.judge.candidate_side.index_width import indices_wrap, memory_named
from cutesmith.judge.candidate_side.watching import KernelWatch
from cutesmith.judge.crossing import tensors
from cutesmith.judge.crossing.tensors import Description

if TYPE_CHECKING:
    from cutesmith.emulator.device import EmulatedDevice

MOST_BYTES = 8 << 30  # of inputs as memory that nobody touches, where host code does not work without


@dataclass
class RecordedCall:
    """What a call did: blocks of each launch, torch operations by name, and `untried`, why there was none to judge.

    `wraps` says what is wrong with an index, `remark` what was tried to find out.
    """

    blocks: list[int]
    computed: dict[str, int]
    untried: str = ""
    wraps: str = ""
    remark: str = ""


def record_call(
    device: EmulatedDevice, kernel: Callable[..., Any], inputs: Sequence[Description], path: Path
) -> RecordedCall:
    """Call the kernel of the file `path` on tensors without storage, or with storage where its host code needs one.

    Raises what the kernel raises the second time, and LaunchRefused at once.
    """
    try:
        return _recorded(device, kernel, inputs, path, storage=False)
    except LaunchRefused:
        raise
    except Exception:  # noqa: BLE001 - it may want values, or memory that it keeps from an earlier call
        if (size := sum(map(_bytes, inputs))) > MOST_BYTES:
            return RecordedCall([], {}, f"host code wants values, and the inputs have {size / 2**30:.1f} GiB")
    try:
        return _recorded(device, kernel, inputs, path, storage=True)
    except MemoryError as error:
        return RecordedCall([], {}, f"this machine has too little memory: {error}")


def _recorded(
    device: EmulatedDevice, kernel: Callable[..., Any], inputs: Sequence[Description], path: Path, *, storage: bool
) -> RecordedCall:
    watch = KernelWatch("emulator" if storage else "meta", poison=None)
    with device.unexecuted(storage=storage) as launches:
        arguments = [_input(description, storage) for description in inputs]
        with watch:
            outputs = kernel(*arguments)
        device.check()  # what ended a launch reaches host code only as an error number
        named = memory_named(device, arguments, outputs)
    wraps, remark = indices_wrap(device, launches, named, path)
    blocks = [prod(held.launch.grid) for held in launches]
    return RecordedCall(blocks, dict(watch.computed), wraps=wraps, remark=remark)


def _input(description: Description, storage: bool) -> Any:
    if "scalar" in description:
        return tensors.read_scalar(description)
    if storage and "file" in description:
        return tensors.read_tensor(description, "cuda")
    layout = (tuple(description["shape"]), tuple(description["stride"]))
    return torch.empty_strided(*layout, dtype=tensors.dtype_of(description), device="cuda")


def _bytes(description: Description) -> int:
    if "scalar" in description:
        return 0
    span = tensors.span_of(description["shape"], description["stride"])
    return span * tensors.dtype_of(description).itemsize
