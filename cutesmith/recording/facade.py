"""Torch code that asks for `device="cuda"`, run on a torch or a machine without CUDA.

Two kinds of stand-in for a CUDA tensor: a CPU tensor with real values, or (`fake=True`) a meta tensor that has shape,
strides and dtype but no storage, so that 8 GB of inputs cost nothing. Both say `is_cuda`, `device("cuda:0")` and
a 256-byte-aligned `data_ptr()`. Tensors that the code makes on the CPU stay CPU tensors and say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils import _device as torch_device

from cutesmith.devices import DEFAULT_ARCH, parse_arch
from cutesmith.recording.claims import Claim, Keeper, is_cuda, shares_memory, storage_of
from cutesmith.recording.dlpack import CudaTensorView
from cutesmith.recording.patches import Patches
from cutesmith.recording.torch_cuda import cuda_stand_ins, generator_class
from cutesmith.verdicts import Mechanism

ALIGNMENT = 256  # what the CUDA allocator guarantees; the CPU's gives 64
_GAP = 1 << 20  # bytes between claimed storages, so that an address just outside of one belongs to no other
_MOST_POSED_BYTES = 1 << 28
_MARK = "_cutesmith_says_cuda"
_FRESH = "_cutesmith_fresh"  # on a storage: the version of its tensor when it was allocated without values
_FIRST_FAKE_ADDRESS = 0x7F00_0000_0000
_CUDA = torch.device("cuda", 0)


@dataclass(frozen=True)
class TorchCall:
    """A call of a torch function, as `__torch_function__` gives it; handlers may take names out of `named`."""

    func: Any
    args: tuple[Any, ...]
    named: dict[str, Any]

    def run(self) -> Any:
        """What torch answers."""
        return self.func(*self.args, **self.named)


class ValuesNeeded(RuntimeError):
    """The code copies values off a tensor that has none: run it again with `fake=False`."""


@contextmanager
def cuda_as_cpu(*, fake: bool = False, arch: str = DEFAULT_ARCH) -> Iterator[Facade]:
    """Within it, `device="cuda"` means CPU tensors (or, with `fake`, tensors without storage); undone at exit.

    `arch` decides what `torch.cuda.get_device_properties` and its like answer. Only the calling thread's torch
    functions are redirected; `torch.cuda.*` is replaced for the process.
    """
    facade = Facade(fake=fake)
    default = torch_device.CURRENT_DEVICE
    with Patches() as patches:
        patches.set_existing(torch.cuda, cuda_stand_ins(parse_arch(arch).sm))
        patches.set(torch, "Generator", generator_class())
        # Else nn.GRU has cuDNN lay out weights that lie on the CPU. The flags are left alone: code reads and sets them.
        patches.set(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
        _active.append(facade)
        try:
            with facade.mode:
                yield facade
        finally:
            _active.remove(facade)
            if default != torch_device.CURRENT_DEVICE:
                torch.set_default_device(default)


def active_facade() -> Facade | None:
    """The innermost facade that is entered, None outside of one."""
    return _active[-1] if _active else None


_active: list[Facade] = []


class Facade:
    """The rules by which tensors pose as CUDA tensors, and the addresses that they claim."""

    def __init__(self, *, fake: bool = False) -> None:
        self.fake = fake
        self.mode = _FacadeMode(self)
        self._stand_in = torch.device("meta" if fake else "cpu")
        self.keeper: Keeper | None = None
        self._posing: dict[int, StorageWeakRef] = {}
        self._posed_bytes = 0  # since dead storages were last forgotten
        self._claims: dict[int, Claim] = {}
        self._next_address = _FIRST_FAKE_ADDRESS

    def says_cuda(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor poses as one on CUDA."""
        with torch._C.DisableTorchFunction():
            if self.fake:
                return tensor.device.type == "meta"
            storage = storage_of(tensor)
            return storage is not None and hasattr(storage, _MARK)

    def address(self, tensor: torch.Tensor) -> int:
        """The device address that the tensor claims (never dereferenced): 256-byte-aligned storage plus its offset."""
        with torch._C.DisableTorchFunction():
            offset = tensor.storage_offset() * tensor.element_size()
            return self._claim(tensor).address + int(offset) if tensor.numel() else 0

    @contextmanager
    def without_storage(self) -> Iterator[None]:
        """Within it, new tensors are as those of `fake=True`; tensors from before do not pose meanwhile."""
        before, kept = (self.fake, self._stand_in), set(self._claims)
        self.fake, self._stand_in = True, torch.device("meta")
        try:
            yield
        finally:
            self.fake, self._stand_in = before
            self._claims = {key: claim for key, claim in self._claims.items() if key in kept}

    def claims(self) -> tuple[Claim, ...]:
        """Every storage whose address was asked for, in that order; addresses ascend."""
        return tuple(self._claims.values())

    def release_dead(self, addresses: Iterable[int]) -> list[int]:
        """Give up those of the claims at `addresses` whose storage has no other owner; their addresses."""
        by_address = {claim.address: key for key, claim in self._claims.items()}
        dead = [a for a in addresses if a in by_address and self._claims[by_address[a]].is_dead]
        for address in dead:
            del self._claims[by_address[address]]
        return dead

    def _claim(self, tensor: torch.Tensor) -> Claim:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._claims:
            # the storage is kept: its identity must not be reused while the address stands for it
            version = None if self.fake else getattr(storage, _FRESH, None)
            self._claims[key] = Claim(self._next_address, storage, tensor.detach(), version)
            self._next_address += -(-(storage.nbytes() + _GAP) // ALIGNMENT) * ALIGNMENT
        return self._claims[key]

    def note_fresh(self, tensor: torch.Tensor) -> None:
        """Remember that the tensor was allocated without values."""
        with torch._C.DisableTorchFunction():
            storage = None if self.fake or tensor.is_inference() else storage_of(tensor)
            if storage is not None:
                setattr(storage, _FRESH, tensor._version)

    def forget_fresh(self, tensor: torch.Tensor) -> None:
        """A handle on the tensor's memory was given out whose writes are not counted."""
        storage = storage_of(tensor)
        if storage is not None and hasattr(storage, _FRESH):
            delattr(storage, _FRESH)
            if storage._cdata in self._claims:
                self._claims[storage._cdata] = replace(self._claims[storage._cdata], version=None)

    def view(self, tensor: torch.Tensor) -> CudaTensorView:
        """The tensor as a DLPack producer that claims CUDA device 0."""
        return CudaTensorView(tensor, self.address(tensor))

    def to_cuda(
        self, tensor: torch.Tensor, dtype: torch.dtype | None = None, copy: bool = False, layout: Any = None
    ) -> torch.Tensor:
        """What `.cuda()` gives: the tensor itself when it poses already, else a stand-in."""
        copy = copy or not self.says_cuda(tensor)
        with torch._C.DisableTorchFunction():
            moved = tensor.to(device=self._stand_in, dtype=dtype or tensor.dtype, copy=copy, **(layout or {}))
        return self.mark(moved)

    def to_cpu(self, tensor: torch.Tensor) -> torch.Tensor:
        """What `.cpu()` gives: a plain copy; a tensor without values cannot give one."""
        if not self.says_cuda(tensor):
            return tensor
        if self.fake:
            raise ValuesNeeded("a tensor without values was copied to the CPU")
        with torch._C.DisableTorchFunction():
            copied = tensor.clone()
            storage = copied.untyped_storage()
            if hasattr(storage, _MARK):  # in a backward pass, where every result of posing tensors poses
                delattr(storage, _MARK)
                self._posing.pop(storage._cdata, None)
            return copied

    def mark(self, tensor: torch.Tensor) -> torch.Tensor:
        """Let a CPU tensor pose as one on CUDA (a meta tensor always does)."""
        with torch._C.DisableTorchFunction():
            storage = None if self.fake else storage_of(tensor)
            if storage is not None and storage._cdata not in self._posing:  # a weak reference keeps that from new ones
                setattr(storage, _MARK, True)  # views and parameters share it
                self._posing[storage._cdata] = StorageWeakRef(storage)  # type: ignore[no-untyped-call,unused-ignore]
                self._forget_dead(storage.nbytes())
                if self.keeper is not None:
                    self.keeper.posed(storage)
        return tensor

    def _forget_dead(self, more: int) -> None:
        """Drop the weak references to dead storages now and then.

        What is left of one, some bytes in what was its memory, keeps malloc from using that for as large a tensor: the
        comparison of a wrong result of 2^20 elements took 10 GB.
        """
        self._posed_bytes += more
        if self._posed_bytes > _MOST_POSED_BYTES:
            self._posed_bytes = 0
            self.posing()

    def posing(self) -> list[torch.UntypedStorage]:
        """The storages of all tensors that pose and are still in use, in the order in which they began to."""
        found = {key: torch.UntypedStorage._new_with_weak_ptr(weak.cdata) for key, weak in self._posing.items()}
        self._posing = {key: weak for key, weak in self._posing.items() if found[key] is not None}
        return [storage for storage in found.values() if storage is not None]

    def at_work(self) -> AbstractContextManager[None]:
        """What to enter while code other than torch works on the memory of posing tensors."""
        return nullcontext() if self.keeper is None else self.keeper.at_work()

    def substitute(self, device: Any) -> Any:
        """The device to use where the code asks for `device`."""
        return self._stand_in if is_cuda(device) else device


class _FacadeMode(TorchFunctionMode):
    """Sees every torch function of the thread: rewrites devices on the way in, marks results on the way out."""

    def __init__(self, facade: Facade) -> None:
        super().__init__()
        self._facade = facade

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        special = _SPECIAL.get(func)
        if special is not None and args:
            return special(self._facade, TorchCall(func, args, named))
        if getattr(func, "__name__", "") == "__get__":
            if func == _DATA:
                self._facade.forget_fresh(args[0])
            return self._mark(func(*args, **named), self._poses(args))
        return self._call(TorchCall(func, args, named))

    def _call(self, call: TorchCall) -> Any:
        func, args, named = call.func, call.args, call.named
        device = named.get("device")
        if device is None and func in torch_device._device_constructors():
            device = torch_device.CURRENT_DEVICE  # set by `with torch.device(...)` and `set_default_device`
        poses = is_cuda(device) if device is not None else self._poses((args, named))
        if is_cuda(device):
            named["device"] = self._facade.substitute(device)
        named.pop("pin_memory", None)
        if self._facade.fake and poses:
            named.pop("generator", None)  # a meta tensor has no values to draw
        result = self._mark(call.run(), poses, (*args, *named.values()))
        if poses and func in _WITHOUT_VALUES:
            self._facade.note_fresh(result)
        return result

    def _poses(self, values: Any) -> bool:
        if isinstance(values, torch.Tensor):
            return self._facade.says_cuda(values)
        if isinstance(values, dict):
            values = values.values()
        elif not isinstance(values, (tuple, list)):
            return False
        return any(self._poses(value) for value in values)

    def _mark(self, result: Any, poses: bool, given: tuple[Any, ...] = ()) -> Any:
        if poses and not self._facade.fake:
            for tensor in result if isinstance(result, (tuple, list)) else (result,):
                # what shares an argument's memory, as in-place results and views do, stays where that is
                if isinstance(tensor, torch.Tensor) and not any(shares_memory(tensor, value) for value in given):
                    self._facade.mark(tensor)
        return result


_Handler = Callable[[Facade, TorchCall], Any]


def _to(facade: Facade, call: TorchCall) -> Any:
    (tensor, *rest), named = call.args, call.named
    device, dtype = named.pop("device", None), named.pop("dtype", None)
    copy = bool(named.pop("copy", False))
    layout = {key: named[key] for key in ("memory_format",) if named.get(key) is not None}
    for value in rest:
        if isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, torch.Tensor):
            device, dtype = (_CUDA if facade.says_cuda(value) else value.device), value.dtype
        elif isinstance(value, (str, torch.device)) or (isinstance(value, int) and not isinstance(value, bool)):
            device = value
    if device is None:
        device = _CUDA if facade.says_cuda(tensor) else tensor.device
    if is_cuda(device):
        return facade.to_cuda(tensor, dtype, copy, layout)
    return facade.to_cpu(tensor).to(device=device, dtype=dtype or tensor.dtype, copy=copy, **layout)


def _cuda(facade: Facade, call: TorchCall) -> Any:
    is_cuda(call.args[1] if len(call.args) > 1 else call.named.get("device"))  # refuses another GPU
    return facade.to_cuda(call.args[0])


def _when_posing(answer: _Handler) -> _Handler:
    """`answer` for a tensor that poses; what torch says for any other."""

    return lambda facade, call: answer(facade, call) if facade.says_cuda(call.args[0]) else call.run()


def _only_on_cpu(refusal: str) -> _Handler:
    """What a CUDA tensor refuses: the host reads and writes its memory there."""

    def refuse(facade: Facade, call: TorchCall) -> Any:
        error = TypeError(refusal)
        error.mechanism = Mechanism.DEVICE_MEMORY  # type: ignore[attr-defined]
        raise error

    return _when_posing(refuse)


_WITHOUT_VALUES = frozenset(
    (
        torch.empty, torch.empty_like, torch.empty_strided, torch.empty_permuted,
        torch.Tensor.new_empty, torch.Tensor.new_empty_strided,
    )
)  # fmt: skip
_Tensor: Any = torch.Tensor  # its attributes are descriptors, which the type stubs do not say
_DATA = _Tensor.data.__get__
_NO_ARRAY = (
    "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
)

_SPECIAL: dict[Any, _Handler] = {
    _Tensor.to: _to,
    _Tensor.cuda: _cuda,
    _Tensor.cpu: lambda facade, call: facade.to_cpu(call.args[0]),
    _Tensor.pin_memory: lambda facade, call: call.args[0],
    _Tensor.numpy: _only_on_cpu(_NO_ARRAY),
    _Tensor.__array__: _only_on_cpu(_NO_ARRAY),
    _Tensor.apply_: _only_on_cpu("apply_ is only implemented on CPU tensors"),
    _Tensor.map_: _only_on_cpu("map_ is only implemented on CPU tensors"),
    _Tensor.map2_: _only_on_cpu("map2_ is only implemented on CPU tensors"),
    _Tensor.tolist: _when_posing(lambda facade, call: facade.to_cpu(call.args[0]).tolist()),
    _Tensor.data_ptr: _when_posing(lambda facade, call: facade.address(call.args[0])),
    _Tensor.get_device: _when_posing(lambda facade, call: 0),
    _Tensor.record_stream: _when_posing(lambda facade, call: None),
    _Tensor.__dlpack__: _when_posing(lambda facade, call: facade.view(call.args[0]).__dlpack__()),
    _Tensor.__dlpack_device__: _when_posing(lambda facade, call: (2, 0)),
    _Tensor.device.__get__: _when_posing(lambda facade, call: _CUDA),
    _Tensor.is_cuda.__get__: _when_posing(lambda facade, call: True),
    _Tensor.is_cpu.__get__: _when_posing(lambda facade, call: False),
    _Tensor.is_meta.__get__: _when_posing(lambda facade, call: False),
}
"""Functions that tell or change where a tensor lives."""
