"""One call of `kernel_fn` at full size whose launches are written down and not executed: can a GPU start them at all?

Shapes and strides are those of `get_inputs()`, values only those that host code may read (see `reference.full_layout`).
The launches also show whether an index wraps at that size (emulator/positions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cutesmith.emulator.errors import LaunchRefused
from cutesmith.emulator.faults import own_line
from cutesmith.emulator.instruction_set import build_program
from cutesmith.emulator.machine.launch import resident_blocks
from cutesmith.emulator.positions.conditions import Conditions
from cutesmith.emulator.positions.search import BITS_OF_FLOATS, Tensor, Wrap, search
from cutesmith.emulator.program.spinning import waits_for_other_blocks
from cutesmith.emulator.ptx.parser import parse
from cutesmith.judge.candidate_side.code_taken import CodeTaken, decisions, launched, opcodes_of
from cutesmith.judge.candidate_side.host_branches import noted
from cutesmith.judge.candidate_side.requests import Decision, FullSizeCall
from cutesmith.judge.candidate_side.watching import KernelWatch
from cutesmith.judge.transfer import tensors
from cutesmith.judge.transfer.requests import Scalar, TensorFile, TensorLayout
from cutesmith.recording.cubin import source_name

if TYPE_CHECKING:
    from cutesmith.emulator.device import EmulatedDevice, Unexecuted

Input = Scalar | TensorFile | TensorLayout
MOST_BYTES = 8 << 30  # of inputs as memory that nothing touches, where host code does not work without
MOST_LAUNCHES = 8  # of different kernels or grids: each is run for some seconds at most
_WIDER = (
    "make it cutlass.Int64 before it is multiplied: cutlass.Int64(row) * columns, or x[cutlass.Int64(row), None], "
    "since a tensor with static strides multiplies in the width of its index"
)


def record_call(
    device: EmulatedDevice, kernel: Callable[..., Any], inputs: Sequence[Input], path: Path
) -> tuple[FullSizeCall, CodeTaken]:
    """Call the kernel of the file `path` on tensors without storage, or with storage where its host code needs one.

    What came of it, and which code it takes.

    Raises what the kernel raises the second time, and LaunchRefused at once.
    """
    try:
        return _recorded(device, kernel, inputs, path, storage=False)
    except LaunchRefused:
        raise
    except Exception:  # noqa: BLE001 - it may want values, or memory that it keeps from an earlier call
        size = sum(0 if isinstance(value, Scalar) else tensors.bytes_spanned(value) for value in inputs)
        if size > MOST_BYTES:
            text = f"host code wants values, and the inputs have {size / 2**30:.1f} GiB"
            return FullSizeCall(untried=text), CodeTaken()
    try:
        return _recorded(device, kernel, inputs, path, storage=True)
    except MemoryError as error:
        return FullSizeCall(untried=f"this machine has too little memory: {error}"), CodeTaken()


def _recorded(
    device: EmulatedDevice, kernel: Callable[..., Any], inputs: Sequence[Input], path: Path, *, storage: bool
) -> tuple[FullSizeCall, CodeTaken]:
    watch = KernelWatch("emulator" if storage else "meta", poison=None)
    with device.unexecuted(storage=storage) as launches:
        arguments = [_input(description, storage) for description in inputs]
        with watch, noted() as branches:
            outputs = kernel(*arguments)
        device.check()  # what ended a launch reaches host code only as an error number
        named = _memory_named(device, arguments, outputs)
    wraps, remark = _indices_wrap(device, launches, named, path)
    blocks = tuple(prod(held.launch.grid) for held in launches)
    names = tuple(source_name(held.launch.kernel) for held in launches)
    crowded = _crowded(device, launches)
    call = FullSizeCall(blocks, names, dict(watch.computed), wraps=wraps, remark=remark, crowded=crowded)
    kernels = {(held.launch.kernel, id(held.module)): parse(held.module.ptx) for held in launches}
    opcodes = {key: opcodes_of(module, key[0]) for key, module in kernels.items()}
    taken = launched((held.launch, held.kernel, opcodes[held.launch.kernel, id(held.module)]) for held in launches)
    conditions = {key: Conditions.of(module, key[0]) for key, module in kernels.items()}
    decided = frozenset[Decision]()
    for held in launches:
        key = held.launch.kernel, id(held.module)
        if (of_kernel := conditions[key]) is not None:
            decided |= decisions(of_kernel, opcodes[key], held.launch, held.kernel, device.sm, path)
    return call, CodeTaken(frozenset(branches), taken, decided)


def _crowded(device: EmulatedDevice, launches: Sequence[Unexecuted]) -> str:
    """Of a kernel whose blocks wait for each other, how many there are where the GPU does not hold them all at once."""
    for held in launches:
        count, room = prod(held.launch.grid), resident_blocks(held.launch, held.kernel, device.sm)
        program = build_program(parse(held.module.ptx), held.launch.kernel) if count > room else None
        if program is not None and waits_for_other_blocks(program):
            return f"{count:,} blocks of {source_name(held.launch.kernel)}, of which the GPU holds {room:,} at once"
    return ""


def _input(value: Input, storage: bool) -> Any:
    if isinstance(value, Scalar):
        return tensors.read_scalar(value)
    if storage and isinstance(value, TensorFile):
        return tensors.read_tensor(value, "cuda")
    return tensors.empty_like(value)


def _memory_named(device: EmulatedDevice, inputs: Sequence[Any], outputs: Any) -> dict[int, tuple[str, bool]]:
    """By the address of memory: "input 0" or "output 0", and whether it is an output's; within `unexecuted`."""
    results = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    named = {address: (f"input {index}", False) for index, address in _addresses(device, inputs)}
    return named | {address: (f"output {index}", True) for index, address in _addresses(device, results)}


def _addresses(device: EmulatedDevice, values: Iterable[Any]) -> list[tuple[int, int]]:
    found = [(index, value) for index, value in enumerate(values) if type(value) is torch.Tensor and value.numel()]
    return [(index, device.memory_of(value)) for index, value in found]


def _indices_wrap(
    device: EmulatedDevice, launches: Sequence[Unexecuted], named: dict[int, tuple[str, bool]], path: Path
) -> tuple[str, str]:
    """What is wrong with an index, or empty; and a remark on what was tried, empty where nothing had to be."""
    different = {(held.launch.kernel, held.launch.grid): held for held in launches}
    searched = []
    for held in list(different.values())[:MOST_LAUNCHES]:
        places = [(named.get(memory[0], ("a workspace", False)), memory) for memory in held.memory]
        searched.append(search(held, [Tensor(name, *memory, out) for (name, out), memory in places], device.sm))
        if (wrap := searched[-1].wrap) is not None:
            return _sentence(wrap, path), ""
    if untried := next((each.untried for each in searched if each.untried), ""):
        return "", f"whether an index wraps at this size could not be tried: {untried}"
    blocks = sum(each.blocks for each in searched)
    tried = f"the addresses of {blocks} blocks, the last among them, were computed: no index wraps"
    return "", tried if blocks else ""


def _sentence(wrap: Wrap, path: Path) -> str:
    where = f"{own_line(wrap.location, path)}: thread {wrap.thread} of block {wrap.block}"
    means = f"means byte {wrap.meant:,} of {wrap.tensor.name} ({wrap.tensor.size:,} bytes) and accesses byte"
    if wrap.bits == BITS_OF_FLOATS:
        text = f"an index goes through float32, which does not hold all integers above 2^24: {where}"
        return f"{text} {means} {wrap.got:,}; divide integers"
    return f"an index of {wrap.bits} bits wraps at this size: {where} {means} {wrap.got:,}; {_WIDER}"
