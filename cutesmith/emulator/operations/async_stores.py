"""`st.async`: a store into the shared memory of any block of the cluster, whose bytes an mbarrier counts.

The bytes arrive at once here. Who reads them without waiting for the mbarrier races with who sent them.
"""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.machine.lanes import LaneBatch
from cutesmith.emulator.machine.suspensions import lane_operation
from cutesmith.emulator.operations.mbarriers import complete_bytes
from cutesmith.emulator.program.abi import Space
from cutesmith.emulator.ptx.syntax import Address, Vector

_DTYPES = {f"{letter}{bits}": np.dtype(f"u{bits // 8}") for letter in "busf" for bits in (32, 64)}
_VECTORS = {"v2": 2, "v4": 4}
_KNOWN = frozenset(("async", "weak", "shared::cluster", "mbarrier::complete_tx::bytes", *_VECTORS))


@lane_operation("st.async")
def store(batch: LaneBatch) -> None:
    """`st.async.shared::cluster.mbarrier::complete_tx::bytes{.v2,.v4}.type [a], b, [object]`."""
    instruction = batch.instruction
    *words, kind = instruction.modifiers
    unknown = sorted(set(words) - _KNOWN) + [kind] * (kind not in _DTYPES)
    if unknown or "mbarrier::complete_tx::bytes" not in words:
        raise UnsupportedInstruction(instruction, f".{unknown[0]}" if unknown else "no mbarrier counts it")
    dtype, count = _DTYPES[kind], next((_VECTORS[word] for word in words if word in _VECTORS), 1)
    address, value, barrier = instruction.operands
    parts = value.elements if isinstance(value, Vector) else (value,)
    if len(parts) != count or not isinstance(address, Address):
        raise UnsupportedInstruction(instruction, f"{len(parts)} registers for {count} elements")
    values = np.stack([batch.read(part, dtype) for part in parts], axis=1)
    data = values.view(np.uint8).reshape(len(batch.lanes), -1)
    batch.memory.store(batch.lanes, Space.SHARED, batch.address(address), data, instruction.number)
    complete_bytes(batch, barrier, data.shape[1])
