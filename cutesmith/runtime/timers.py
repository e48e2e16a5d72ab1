"""How a launch is timed in the process that holds it: by replay of a CUDA graph, or by the emulated GPU's counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from cutesmith.devices import parse_arch
from cutesmith.errors import CandidateError
from cutesmith.runtime.plan import CuteKernel
from cutesmith.timing.stopwatch import Stopwatch
from cutesmith.verdicts import ExitCode

LAUNCHES = 10  # of one replay
WARM_UPS = 3
NOT_CAPTURED = (
    "the launch is not part of the CUDA graph: no output changed when the graph ran. Launch on the current stream: "
    "compile with make_fake_stream(use_tvm_ffi_env_stream=True)"
)


class Timer(Protocol):
    """Times kernels where they were compiled.

    `repeats` False: every round gives the same, so that one is enough; `is_time` False: lower bounds, nothing measured.
    """

    name: str
    repeats: bool
    is_time: bool

    def __init__(self, arch: str) -> None: ...

    def session(self) -> Any:
        """A context in which the file is loaded, compiled and launched."""
        ...

    def prepare(self, kernel: CuteKernel) -> None:
        """First launches; raises what is wrong with them."""
        ...

    def round(self, kernel: CuteKernel) -> list[float]:
        """Microseconds of each of some launches."""
        ...

    def copy_bytes_per_second(self) -> float | None:
        """Bandwidth of a large copy, None where nothing can be measured."""
        ...

    def matmul_flops_per_second(self, dtype: torch.dtype) -> float | None:
        """The rate of a large matrix product, None where nothing can be measured."""
        ...


@dataclass(frozen=True)
class Replay:
    """A captured graph, and the events that it records before and after each launch."""

    graph: Any
    pairs: Sequence[tuple[Any, Any]]


class GraphTimer:
    """Device time by replaying one CUDA graph a kernel: flush of the L2, event, launch, event, several times over.

    The flush lies outside the two events, so that none of its time has to be taken off; within a graph the device
    never waits for the host between them. Takes hold of what it needs of torch before any candidate is loaded.
    """

    name = "CUDA graph replay, cold L2"
    repeats = is_time = True

    def __init__(self, arch: str, launches: int = LAUNCHES, *, cold: bool = True) -> None:
        self.launches, self.cold = launches, cold
        self._stopwatch = Stopwatch()
        self._event: Any = torch.cuda.Event
        self._graph: Any = torch.cuda.CUDAGraph
        self._capturing: Any = torch.cuda.graph
        self._synchronize: Any = torch.cuda.synchronize
        self._replays: dict[int, tuple[CuteKernel, Replay]] = {}

    @contextmanager
    def session(self) -> Iterator[None]:
        """Nothing to enter: the GPU is there."""
        yield

    def prepare(self, kernel: CuteKernel) -> None:
        """Launch until everything is loaded, capture, and see that the graph holds the launch."""
        for _ in range(WARM_UPS):
            kernel.launch()
            self._synchronize()
        replay = self._capture(kernel)
        self._require_captured(kernel, replay)
        self._replays[id(kernel)] = (kernel, replay)  # the kernel is kept, so that its identity is not used again

    def round(self, kernel: CuteKernel) -> list[float]:
        """Device microseconds of each launch of one replay."""
        replay = self._replays[id(kernel)][1]
        replay.graph.replay()
        self._synchronize()
        return [1000 * begin.elapsed_time(end) for begin, end in replay.pairs]

    def copy_bytes_per_second(self) -> float | None:
        """As the benchmark measures it."""
        return self._stopwatch.copy_bytes_per_second()

    def matmul_flops_per_second(self, dtype: torch.dtype) -> float | None:
        """As the benchmark measures it."""
        return self._stopwatch.matmul_flops_per_second(dtype)

    def _capture(self, kernel: CuteKernel) -> Replay:
        """`external` events become nodes of the graph, which the device records again in every replay."""
        made = (self._event(enable_timing=True, external=True) for _ in range(2 * self.launches))
        pairs = list(zip(made, made, strict=True))
        for event in (event for pair in pairs for event in pair):
            event.record()  # makes the event, which is lazy, before the capture
        self._synchronize()
        graph = self._graph()
        with torch.no_grad(), self._capturing(graph):
            for begin, end in pairs:
                if self.cold:
                    self._stopwatch.flush()
                begin.record()
                kernel.launch()
                end.record()
        self._synchronize()  # a launch that went elsewhere is over before the outputs are read
        return Replay(graph, pairs)

    def _require_captured(self, kernel: CuteKernel, replay: Replay) -> None:
        """A launch on a stream of its own would leave an empty graph, and the best time of all.

        So the outputs are spoilt, and one must change; values that the kernel also reads become noise for as long.
        """
        filled = [tensor for tensor in kernel.outputs if tensor.numel()]
        own = [tensor for tensor in filled if not _shares_memory(tensor, kernel.inputs)]
        watched = own or [tensor for tensor in filled if tensor.is_floating_point()]
        pristine = [tensor.clone() for tensor in watched]
        spoilt = [_spoil(tensor) if own else _shuffle(tensor) for tensor in watched]
        replay.graph.replay()
        self._synchronize()
        same = [torch.equal(_bits(tensor), before) for tensor, before in zip(watched, spoilt, strict=True)]
        for tensor, values in zip(watched, pristine, strict=True):
            tensor.copy_(values)
        if same and all(same):
            raise CandidateError(NOT_CAPTURED, ExitCode.CRASHED)


def _spoil(tensor: torch.Tensor) -> torch.Tensor:
    """Make every element another one that no kernel is likely to write; the bytes that it has then."""
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    elif tensor.dtype == torch.bool:
        tensor.logical_not_()
    else:
        tensor.bitwise_not_()
    return _bits(tensor)


def _shuffle(tensor: torch.Tensor) -> torch.Tensor:
    """Make every element noise, which what works in place will change; the bytes that it has then."""
    tensor.copy_(torch.randn(tensor.shape, device=tensor.device))
    return _bits(tensor)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of the elements' bytes: NaN equals itself there."""
    return tensor.detach().contiguous().clone().view(-1).view(torch.uint8)


def _shares_memory(tensor: torch.Tensor, values: Sequence[Any]) -> bool:
    """Whether the kernel works in place on one of the values: spoiling it would spoil what is read."""
    storage = tensor.untyped_storage().data_ptr()
    others = [value for value in values if isinstance(value, torch.Tensor)]
    return any(other.untyped_storage().data_ptr() == storage for other in others)


class EmulatedTimer:
    """No time of a GPU, but an order without one: what the busiest pipe alone needs, by the emulated GPU's counts."""

    name = "the emulated GPU's counts, no measured time"
    repeats = is_time = False

    def __init__(self, arch: str) -> None:
        from cutesmith.emulator.profiling.sampling import Profiler

        self.arch, self._profiler = arch, Profiler()

    @contextmanager
    def session(self) -> Iterator[None]:
        """The emulated GPU, profiled."""
        from cutesmith.emulator.device import emulated_device

        with emulated_device(self.arch, observer=self._profiler) as self._device:
            yield

    def prepare(self, kernel: CuteKernel) -> None:
        """Compile; a launch would cost as much as the round itself."""
        kernel.compile()

    def round(self, kernel: CuteKernel) -> list[float]:
        """Microseconds at least, of all launches of one call; a finding of the sanitizer is an error."""
        from cutesmith.emulator.profiling.advice import floor_us
        from cutesmith.emulator.profiling.launch_profile import profile_of
        from cutesmith.profiling.emulation_worker import CLOCK_HZ

        before = len(self._profiler.samples)
        kernel.launch()
        if findings := self._device.findings:
            raise CandidateError(f"{findings[0].kind.value}: {findings[0].message}", ExitCode.CRASHED)
        processors = parse_arch(self.arch).sm.multiprocessors
        samples = self._profiler.samples[before:]
        return [sum(floor_us(profile_of(sample, ""), processors, CLOCK_HZ) for sample in samples)]

    def copy_bytes_per_second(self) -> float | None:
        """Nothing is measured here."""
        return None

    def matmul_flops_per_second(self, dtype: torch.dtype) -> float | None:
        """Nothing is measured here."""
        return None


TIMERS: dict[str, type[Timer]] = {"cuda": GraphTimer, "emulator": EmulatedTimer}
"""Each device's own."""
