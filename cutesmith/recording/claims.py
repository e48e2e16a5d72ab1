"""Storages that pose as memory of a GPU: who keeps them, the addresses that they claim, and which devices there are."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from cutesmith.errors import UnavailableError

_HOLDERS_OF_A_CLAIM = 2  # `storage` and `alias`


class Keeper(Protocol):
    """What keeps the memory of posing tensors from host code."""

    def posed(self, storage: torch.UntypedStorage) -> None:
        """A storage poses from now on."""

    def at_work(self) -> AbstractContextManager[None]:
        """Within it, the memory may be worked on."""


@dataclass(frozen=True)
class Claim:
    """A storage and the device address that its tensors claim; `version` is None if it was allocated with values."""

    address: int
    storage: torch.UntypedStorage
    alias: torch.Tensor  # shares the version counter of the tensor that was claimed first
    version: int | None

    @property
    def written(self) -> bool:
        """Whether torch has put values into it: everything but `torch.empty` and its like does."""
        return self.version is None or self.alias._version != self.version

    @property
    def is_dead(self) -> bool:
        """Whether only the claim itself keeps the storage."""
        holders: int = torch._C._storage_Use_Count(self.storage._cdata)
        return holders <= _HOLDERS_OF_A_CLAIM


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The tensor's storage, None for the kinds that have none (sparse, wrapped by a transform)."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def shares_memory(tensor: torch.Tensor, other: Any) -> bool:
    if not isinstance(other, torch.Tensor):
        return False
    mine, theirs = storage_of(tensor), storage_of(other)
    return mine is not None and theirs is not None and mine._cdata == theirs._cdata


def is_cuda(device: Any) -> bool:
    """Whether `device` (a string, an index, a torch.device) names the GPU; UnavailableError for a further one."""
    if isinstance(device, bool) or device is None:
        return False
    kind, _, number = ("cuda", "", str(device)) if isinstance(device, int) else str(device).partition(":")
    if kind == "cuda" and number.isdigit() and int(number) > 0:
        hint = "The emulated GPU is one GPU: run on a machine with more what needs several."
        raise UnavailableError(f"`cuda:{number}` is asked for, and there is `cuda:0` alone", hint=hint)
    return kind == "cuda"
