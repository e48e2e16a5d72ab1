"""The GPU's memory between two processes that take turns: what one keeps for itself, the other cannot have."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from cutesmith.errors import ContractError, UnavailableError

FAIR_SHARE = 0.5  # of the GPU's memory: a kernel that finds so much free and runs out of it takes too much
MORE_ROOM = "Judge it with no one else on the GPU, on one with more memory, or on fewer elements from get_inputs()."
KEPT_UNUSED = 12 << 30  # bytes; to allocate them again takes time that smaller tasks need not spend
# Captured before any candidate is loaded:
_initialized, _empty_cache = torch.cuda.is_initialized, torch.cuda.empty_cache
_allocated, _reserved = torch.cuda.memory_allocated, torch.cuda.memory_reserved
_free_and_total, _OutOfMemory = torch.cuda.mem_get_info, torch.OutOfMemoryError


def whole_gpu() -> float:
    """The share of the GPU's memory that a kernel has where nothing large is beside it."""
    return 1.0


def release_unused() -> None:
    """Give back what PyTorch keeps for later allocations, where that is much.

    With inputs of 6.4 GB, as KernelBench has them, each side of the judge holds several copies at its peak.
    """
    if _initialized() and _reserved() - _allocated() > KEPT_UNUSED:  # type: ignore[no-untyped-call,unused-ignore]
        _empty_cache()


def room_here() -> Callable[[], float]:
    """A function that says how much of the GPU's memory this process could have still, from 0 to 1; without a GPU 1.

    The driver is asked now; later the function asks nothing, so that it may be called while a stream is held.
    """
    if not _initialized():  # type: ignore[no-untyped-call,unused-ignore]
        return whole_gpu
    free, total = _free_and_total()
    ours = free + _reserved()
    return lambda: (ours - _allocated()) / total


def bytes_here() -> int:
    """How many bytes of the GPU's memory this process could allocate now; 0 where it uses none."""
    if not _initialized():  # type: ignore[no-untyped-call,unused-ignore]
        return 0
    return int(_free_and_total()[0] + _reserved() - _allocated())


def share_here() -> float:
    """The share of the GPU's memory that other processes leave this one, from 0 to 1; without a GPU 1."""
    if not _initialized():  # type: ignore[no-untyped-call,unused-ignore]
        return 1.0
    free, total = _free_and_total()
    return float((free + _reserved()) / total)


@contextlib.contextmanager
def wide_copies(share: Callable[[], float] = share_here) -> Iterator[None]:
    """Work in float64, without which a result is judged otherwise: UnavailableError where others hold the memory.

    What runs out of it by itself is too large for this GPU, and is judged without.
    """
    try:
        yield
    except _OutOfMemory as error:
        if (left := share()) >= FAIR_SHARE:
            raise
        text = f"out of memory: other processes leave the float64 reference {left:.0%} of the GPU's: {error}"
        raise UnavailableError(text, hint=MORE_ROOM) from error


@contextlib.contextmanager
def fair_room(share: float) -> Iterator[None]:
    """A kernel's call, before which it could have `share` of the GPU's memory.

    Where the judge's own copies left it less than half, memory that runs out says nothing of it: UnavailableError.
    """
    try:
        yield
    except _OutOfMemory as error:
        if share >= FAIR_SHARE:
            raise
        left = f"kernel_fn ran out of memory: the judge's own copies left it {share:.0%} of the GPU's"
        raise UnavailableError(f"{left}: {error}", hint=MORE_ROOM) from error


@contextlib.contextmanager
def own_copies(large: Callable[[], bool]) -> Iterator[None]:
    """The judge's own work: beside `large` inputs, memory that runs out says nothing of the kernel: UnavailableError.

    Beside small ones the kernel holds it, or a neighbour.
    """
    try:
        yield
    except (_OutOfMemory, ContractError) as error:  # the latter where reference_fn or get_inputs raised the former
        if not (large() and _OutOfMemory in (type(error), type(error.__cause__))):
            raise
        text = f"out of memory: the judge's own copies have no room on this GPU: {error}"
        raise UnavailableError(text, hint=MORE_ROOM) from error
