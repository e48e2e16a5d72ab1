"""Stand-ins for `torch.cuda`: streams, events, generators and device queries that answer without a GPU."""

from __future__ import annotations

import contextlib
import types
from typing import Any

import torch

from cutesmith.devices import DEFAULT_ARCH, MAX_THREADS_PER_BLOCK, WARP_SIZE, SmVersion, parse_arch
from cutesmith.errors import UnavailableError
from cutesmith.recording.gpu_size import told_to_host_code

_MEMORY_BYTES = 80 << 30
_ANY = parse_arch(DEFAULT_ARCH).sm


class Stream:
    """A stream that orders nothing: the null stream, usable as a context manager."""

    cuda_stream = 0
    stream_id = 0
    device_index = 0
    device_type = 2
    priority = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device = torch.device("cuda", 0)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, 0)

    def query(self) -> bool:
        """Nothing is ever pending."""
        return True

    def record_event(self, event: Any = None) -> Any:
        """The event, or a new one."""
        return event if event is not None else Event()

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        return None

    synchronize = wait_event = wait_stream = _nothing


class Event:
    """An event that has always happened, zero milliseconds after any other."""

    cuda_event = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device = torch.device("cuda", 0)

    def query(self) -> bool:
        """Nothing is ever pending."""
        return True

    def elapsed_time(self, other: Any) -> float:
        """Milliseconds; nothing was executed, so none."""
        return 0.0

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        return None

    record = synchronize = wait = _nothing


def generator_class() -> type[torch.Generator]:
    """A `torch.Generator` whose CUDA generators are CPU ones, so that seeds still mean something."""

    class Generator(torch.Generator):
        def __new__(cls, device: Any = "cpu") -> Generator:
            made: Generator = torch._C.Generator.__new__(cls, device="cpu")  # type: ignore[call-arg]
            return made

        def __init__(self, device: Any = "cpu") -> None:
            self.poses_as = torch.device(device)

    return Generator


class _Properties(types.SimpleNamespace):
    """Properties of a device, whose number of multiprocessors is asked for each time."""

    sm: SmVersion

    @property
    def multi_processor_count(self) -> int:
        """Multiprocessors of the GPU."""
        return told_to_host_code(self.sm)


def device_properties(sm: SmVersion) -> types.SimpleNamespace:
    """What `torch.cuda.get_device_properties` answers for a GPU of this SM version."""
    major, minor = sm.capability
    return _Properties(
        sm=sm,
        name=f"{sm.products[0]} (recorded, sm_{sm.number})",
        major=major,
        minor=minor,
        total_memory=_MEMORY_BYTES,
        warp_size=WARP_SIZE,
        max_threads_per_block=MAX_THREADS_PER_BLOCK,
        max_threads_per_multi_processor=sm.threads_per_sm,
        regs_per_multiprocessor=sm.registers_per_sm,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=sm.smem_per_block,
        shared_memory_per_multiprocessor=sm.smem_per_sm,
        L2_cache_size=sm.l2_bytes,
        is_integrated=False,
        is_multi_gpu_board=False,
        gcnArchName="",
    )


def cuda_stand_ins(sm: SmVersion) -> dict[str, object]:
    """The names of `torch.cuda` that are replaced, with what replaces them."""
    properties, null = device_properties(sm), Stream()
    answers = {
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_capability": sm.capability,
        "get_device_name": properties.name,
        "get_device_properties": properties,
        "get_arch_list": [sm.default_arch],
        "mem_get_info": (_MEMORY_BYTES, _MEMORY_BYTES),
        "memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_allocated": 0,
        "max_memory_reserved": 0,
        "memory_stats": {},
        "initial_seed": 0,
        "can_device_access_peer": False,
        "is_tf32_supported": sm.capability >= (8, 0),
        "current_stream": null,
        "default_stream": null,
        **dict.fromkeys(_NO_OPS.split()),
    }
    return {
        **{name: _answer(value) for name, value in answers.items()},
        "Stream": Stream,
        "ExternalStream": Stream,
        "Event": Event,
        "stream": lambda stream: contextlib.nullcontext(stream),
        "StreamContext": contextlib.nullcontext,
        "device": _DeviceContext,
        "device_of": _DeviceContext,
        # Values on "cuda" come from the CPU's generator.
        **dict.fromkeys(("manual_seed", "manual_seed_all"), lambda seed: torch.default_generator.manual_seed(seed)),
        "get_rng_state": lambda device=None: torch.default_generator.get_state(),
        "set_rng_state": lambda state, device=None: torch.default_generator.set_state(state),
    }


def cuda_refusals() -> dict[str, object]:
    """All other functions and classes of `torch.cuda`, each replaced by one that refuses by name (UnavailableError)."""
    graphs = ("CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing")  # those of cuda_graphs.py
    kept = {"OutOfMemoryError", "DeferredCudaCallError", "CudaError", "cudaStatus", *cuda_stand_ins(_ANY), *graphs}
    names = (name for name in torch.cuda.__all__ if name not in kept and not name.endswith("Storage"))
    return {name: refused(f"torch.cuda.{name}") for name in names if callable(getattr(torch.cuda, name, None))}


def refused(name: str) -> type:
    """A class in the place of a function or class: making or calling it raises UnavailableError with its name."""

    def refuse(cls: Any, *args: Any, **kwargs: Any) -> Any:
        raise UnavailableError(f"the emulated GPU has no `{name}`", hint="Run what needs it on a GPU.")

    return type(name.rsplit(".", 1)[-1], (), {"__new__": refuse})


_NO_OPS = (
    "synchronize init _lazy_init set_device set_stream empty_cache ipc_collect seed seed_all reset_peak_memory_stats "
    "reset_max_memory_allocated reset_accumulated_memory_stats set_per_process_memory_fraction set_sync_debug_mode "
    "check_error _sleep"
)


def _answer(value: Any) -> Any:
    return lambda *args, **kwargs: value


class _DeviceContext:
    def __init__(self, device: Any = 0) -> None:
        self.idx = 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        return None
