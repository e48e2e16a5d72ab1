"""The memory of the emulated GPU, kept from host code as a real GPU's is.

On the emulated GPU a "CUDA" tensor is CPU memory, which host code can reach by ways that torch does not see. So while
`kernel_fn` runs, its bytes are taken away and a pattern lies in their place, but for the moments in which a launch or
an operation of torch works on them. What host code reads is the pattern; what it writes is found and undone (rule W1).
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

if TYPE_CHECKING:
    from cutesmith.recording.facade import Facade

PATTERN = 0xC3
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
WRITTEN = "host code wrote into a CUDA tensor outside of a launch: only the CuTe kernel may compute"
HANDED = "host code passed memory that it had filled itself as a CUDA tensor: only the CuTe kernel may compute"


@dataclass(frozen=True)
class _Taken:
    """The bytes of one storage while the pattern lies there; the room for them stays when they are back."""

    storage: torch.UntypedStorage
    address: int
    room: ctypes.Array[ctypes.c_char]


class DeviceOnlyMemory:
    """Keeps the tensors of a facade from host code between `take` and `give_back`; `tampering` says what was found."""

    def __init__(self, facade: Facade) -> None:
        self._facade = facade
        self._taken: dict[int, _Taken] = {}  # by the storage's identity, which this keeps alive
        self._born: dict[int, StorageWeakRef] = {}
        self._at_work = 0
        self.tampering: list[str] = []

    def take(self) -> None:
        """Begin: all CUDA tensors that there are, and from now on every new one."""
        self._facade.keeper = self
        for storage in self._facade.posing():
            self._hide(storage)

    def give_back(self) -> None:
        """End: every tensor has its bytes again."""
        self._facade.keeper = None
        self._show_all()

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Within it the bytes are there: for a launch, or for an operation that torch dispatches."""
        if not self._at_work:
            shown = self._show_all()
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1
            if not self._at_work:
                for item in shown:
                    self._hide(item.storage, item.room)

    def note_result(self, result: Any) -> None:
        """Remember what an operation of torch gave: memory that poses and comes from none was filled by the host."""
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self._born[storage._cdata] = StorageWeakRef(storage)  # type: ignore[no-untyped-call,unused-ignore]

    def posed(self, storage: torch.UntypedStorage) -> None:
        """A storage poses from now on."""
        if storage._cdata in self._taken:
            return
        if storage._cdata not in self._born:
            self._find(HANDED)
        self._hide(storage)

    def _hide(self, storage: torch.UntypedStorage, room: ctypes.Array[ctypes.c_char] | None = None) -> None:
        address, size = storage.data_ptr(), storage.nbytes()
        if size and address:  # without storage there is nothing to take
            if room is None or len(room) != size:
                room = (ctypes.c_char * size)()
            self._taken[storage._cdata] = _Taken(storage, address, room)
            ctypes.memmove(room, address, size)
            ctypes.memset(address, PATTERN, size)

    def _show_all(self) -> list[_Taken]:
        """Put every content back, the last taken first: storages may overlap."""
        taken, self._taken = list(self._taken.values()), {}
        for item in reversed(taken):
            self._show(item)
        return taken

    def _show(self, item: _Taken) -> None:
        size = len(item.room)
        if (item.storage.data_ptr(), item.storage.nbytes()) != (item.address, size):
            self._find(WRITTEN)  # it was resized or exchanged where no operation was seen
            return
        # All is the pattern where the first byte is and each is as the one before it.
        first = ctypes.c_ubyte.from_address(item.address).value
        if first != PATTERN or _memcmp(item.address, item.address + 1, size - 1):
            self._find(WRITTEN)
        ctypes.memmove(item.address, item.room, size)

    def _find(self, sentence: str) -> None:
        if sentence not in self.tampering:
            self.tampering.append(sentence)
