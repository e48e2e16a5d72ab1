"""What the launches of a call at full size say of the width of their indices (emulator/positions)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cutesmith.emulator.faults import own_line
from cutesmith.emulator.positions.search import Searched, Tensor, Wrap, search

if TYPE_CHECKING:
    from cutesmith.emulator.device import EmulatedDevice, Unexecuted

MOST_LAUNCHES = 8  # of different kernels or grids: each is run for some seconds at most
_WIDER = (
    "make it cutlass.Int64 before it is multiplied: cutlass.Int64(row) * columns, or x[cutlass.Int64(row), None], "
    "since a tensor with static strides multiplies in the width of its index"
)


def memory_named(device: EmulatedDevice, inputs: Sequence[Any], outputs: Any) -> dict[int, tuple[str, bool]]:
    """By the address of memory: "input 0" or "output 0", and whether it is an output's; within `unexecuted`."""
    results = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    named = {address: (f"input {index}", False) for index, address in _addresses(device, inputs)}
    return named | {address: (f"output {index}", True) for index, address in _addresses(device, results)}


def _addresses(device: EmulatedDevice, values: Iterable[Any]) -> list[tuple[int, int]]:
    tensors = [(index, value) for index, value in enumerate(values) if type(value) is torch.Tensor]
    return [(index, device.memory_of(value)) for index, value in tensors if value.numel()]


def indices_wrap(
    device: EmulatedDevice, launches: Sequence[Unexecuted], named: dict[int, tuple[str, bool]], path: Path
) -> tuple[str, str]:
    """What is wrong with an index, or empty; and a remark on what was tried, empty where nothing had to be."""
    different = {(held.launch.kernel, held.launch.grid): held for held in launches}
    searched = []
    for held in list(different.values())[:MOST_LAUNCHES]:
        searched.append(search(held, [_tensor(memory, named) for memory in held.memory], device.sm))
        if (wrap := searched[-1].wrap) is not None:
            return _sentence(wrap, path), ""
    return "", _remark(searched)


def _tensor(memory: tuple[int, int], named: dict[int, tuple[str, bool]]) -> Tensor:
    name, returned = named.get(memory[0], ("a workspace", False))
    return Tensor(name, *memory, returned)


def _sentence(wrap: Wrap, path: Path) -> str:
    where = f"{own_line(wrap.location, path)}: thread {wrap.thread} of block {wrap.block}"
    means = f"means byte {wrap.meant:,} of {wrap.tensor.name} ({wrap.tensor.size:,} bytes) and accesses byte"
    return f"an index of {wrap.bits} bits wraps at this size: {where} {means} {wrap.got:,}; {_WIDER}"


def _remark(searched: Sequence[Searched]) -> str:
    if untried := next((each.untried for each in searched if each.untried), ""):
        return f"whether an index wraps at this size could not be tried: {untried}"
    blocks = sum(each.blocks for each in searched)
    return f"the addresses of {blocks} blocks, the last among them, were computed: no index wraps" if blocks else ""
