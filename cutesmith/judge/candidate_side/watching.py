"""What `kernel_fn` asks of torch while it runs.

Rule W1 at run time: only allocation and view operations are torch's business inside `kernel_fn`. The same dispatch mode
serves those allocations from guarded, poisoned memory.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Any

import torch

from cutesmith.judge.candidate_side.device_only import DeviceOnlyMemory
from cutesmith.judge.transfer.tensors import GUARD_BYTES, NAN_POISON, Guarded
from cutesmith.recording.facade import active_facade
from cutesmith.sandbox.dispatch_modes import LightMode

ALLOCATIONS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
CONSTANTS = frozenset("zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full".split())
FILLS = frozenset({"zero_", "fill_"})
HARMLESS = FILLS | {"record_stream", "lift_fresh", "detach_", "sym_size", "sym_stride", "is_pinned", "_unsafe_view"}
MOST_FILLS = 64  # of a call: who writes an output element by element computes with torch
COPIES = frozenset({"clone", "copy_", "_to_copy"})


class KernelWatch(LightMode):
    """Counts the torch operations of `kernel_fn` and guards what it allocates on `device`.

    `computed` counts operations that are neither allocation nor view (rule W1), `copied` plain copies of a layout.
    With `poison` None (compile only: there are no values) nothing is guarded.
    """

    def __init__(self, device: str, *, poison: int | None = NAN_POISON) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.device, self.poison = ("cpu" if device == "emulator" else device), poison
        self._zone_bytes = 0 if device == "emulator" else GUARD_BYTES
        self.computed: Counter[str] = Counter()
        self.copied: Counter[str] = Counter()
        self.allocations: list[Guarded] = []
        self._fills = 0
        facade = active_facade() if device == "emulator" else None
        self._memory = None if facade is None else DeviceOnlyMemory(facade)

    @property
    def tampering(self) -> list[str]:
        """What host code did to the emulated GPU's memory, a sentence each (rule W1)."""
        return [] if self._memory is None else self._memory.tampering

    def __enter__(self) -> KernelWatch:  # noqa: PYI034 - typing.Self needs Python 3.11
        super().__enter__()  # type: ignore[no-untyped-call,unused-ignore]
        if self._memory is not None:
            self._memory.take()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._memory is not None:
            self._memory.give_back()
        super().__exit__(*error)  # type: ignore[no-untyped-call,unused-ignore]

    def dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operation's result, counted; what it allocates lies between guards."""
        name = func._schema.name.partition("::")[2]
        made = name in ALLOCATIONS or name in CONSTANTS
        with nullcontext() if self._memory is None or made or _is_view(func) else self._memory.at_work():
            result = _called(func, args, kwargs)
        if made:
            result = self._guard(result, keep_values=name in CONSTANTS)
        if self._memory is not None and name != "lift_fresh" and not _aliases(func):
            self._memory.note_result(result)  # what is lifted was filled by the host
        if made:
            return result
        self._fills += name in FILLS
        if name in FILLS and self._fills > MOST_FILLS:
            self.computed[f"more than {MOST_FILLS} times {name}"] = self._fills
        elif name in COPIES and _keeps_values(args, result):
            self.copied[name] += 1
        elif name not in HARMLESS and not _is_view(func):
            self.computed[name] += 1
        return result

    def _guard(self, allocated: Any, *, keep_values: bool) -> Any:
        if self.poison is None or not isinstance(allocated, torch.Tensor) or allocated.device.type != self.device:
            return allocated
        layout = (allocated.shape, allocated.stride(), allocated.dtype)
        guarded = Guarded(*layout, self.device, poison=self.poison, zone_bytes=self._zone_bytes)
        if keep_values:
            guarded.tensor.copy_(allocated)
        self.allocations.append(guarded)
        return guarded.tensor


def _called(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`func`, where an `empty_like` without storage needs not SymPy, whose import takes 0.4 s."""
    like = args[0] if func is torch.ops.aten.empty_like.default else None
    if like is None or like.device.type != "meta" or not like.is_contiguous() or kwargs.get("memory_format"):
        return func(*args, **kwargs)
    made = {"dtype": like.dtype, "device": like.device, "layout": like.layout}
    given = {name: value for name, value in kwargs.items() if value is not None}
    return torch.ops.aten.empty.memory_format(list(like.shape), **(made | given))


def _is_view(func: Any) -> bool:
    return any(not alias.is_write for alias in _aliases(func))


def _aliases(func: Any) -> list[Any]:
    """What an operation gives of the memory that it was given: views, and whatever works in place."""
    return [value.alias_info for value in func._schema.returns if value.alias_info is not None]


def _keeps_values(args: tuple[Any, ...], result: Any) -> bool:
    """Whether a copy changes neither the dtype nor moves data off the device: then it only changes the layout."""
    source = next((value for value in reversed(args) if isinstance(value, torch.Tensor)), None)
    if source is None or not isinstance(result, torch.Tensor):
        return False
    moved_off = source.device.type != "cpu" and result.device.type != source.device.type
    return source.dtype == result.dtype and not moved_off
