"""Device and host time of a callable, inside the process that runs it (microseconds).

A round queues a sleep, then launches, each between two CUDA events after a write of twice the L2 cache, so that the
device never waits for the host and no launch finds its inputs cached. The flush leaves dirty lines behind, as whatever
ran before would: their write-back stands for that of the kernel's own last lines, which no event sees.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch

from cutesmith.errors import CandidateError
from cutesmith.timing.fresh_values import Nudge, apply
from cutesmith.verdicts import Mechanism, Rule, Violation

Function = Callable[..., Any]
SLEEP_CYCLES_PER_US = 2000  # at 2 GHz; a slower clock only sleeps longer
MAX_SLEEP_US = 50_000.0
HOST_CALLS, HOST_BATCHES = 50, 5
QUEUE_US, CHANGE_US = 25.0, 10.0  # host time of flush and events, and of one change of an input

_perf_counter = time.perf_counter


class Stopwatch:
    """Times callables on the current CUDA device; owns the buffer that flushes the L2 cache.

    Takes hold of torch's events and waits when it is made, which is before any candidate is loaded.
    """

    def __init__(self) -> None:
        self._event: Any = torch.cuda.Event
        self._synchronize: Any = torch.cuda.synchronize
        self._sleep: Any = torch.cuda._sleep
        self.l2_bytes = int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)
        self._flush = torch.empty(max(2 * self.l2_bytes, 32 << 20), dtype=torch.int8, device="cuda")
        self._events: list[tuple[Any, Any]] = []
        self._persisting_l2 = _persisting_l2_reader()
        self._persisting_at_first = self._persisting_l2()

    def warm_up(self, function: Function, copies: Sequence[Sequence[Any]]) -> dict[str, float]:
        """First calls (they compile), then estimates of device and host time."""
        for index in range(3):
            function(*copies[index % len(copies)])
            self._synchronize()
        host = self.host_us(function, copies, calls=10, batches=3)
        samples, _ = self.round(function, copies, launches=5, host_us=host)
        return {"device_us": median(samples), "host_us": host}

    def round(
        self,
        function: Function,
        copies: Sequence[Sequence[Any]],
        *,
        launches: int,
        host_us: float,
        keep: int = -1,
        changes: Sequence[Nudge] = (),
    ) -> tuple[list[float], Any]:
        """Device time of each of `launches` launches over rotating inputs, and what launch number `keep` returned.

        `changes`: what to do to the inputs before each launch. Raises CandidateError (rule T5) when the function has
        set lines of the L2 cache aside, which the flush would not reach.
        """
        kept = None
        while len(self._events) < launches:
            self._events.append((self._event(enable_timing=True), self._event(enable_timing=True)))
        pairs = self._events[:launches]
        between_us = QUEUE_US + CHANGE_US * max(map(len, changes), default=0)
        self._synchronize()
        self._sleep(int(min(MAX_SLEEP_US, 200 + 1.5 * launches * (host_us + between_us)) * SLEEP_CYCLES_PER_US))
        for index, (begin, end) in enumerate(pairs):
            inputs = copies[index % len(copies)]
            if changes:
                apply(changes[index])
            self.flush()
            begin.record()
            output = function(*inputs)
            end.record()
            if index == keep:
                kept = output
        self._require_whole_cache()
        self._synchronize()
        return [1000 * begin.elapsed_time(end) for begin, end in pairs], kept

    def _require_whole_cache(self) -> None:
        """While the launches are still queued, so that a limit set back after the call is set back too early."""
        if (now := self._persisting_l2()) != self._persisting_at_first:
            message = f"the kernel set {now} bytes aside as persisting L2, which no flush reaches"
            raise CandidateError.rejecting(Violation(Rule.T5, Mechanism.PERSISTING_L2, message))

    def flush(self) -> None:
        """Queue a write of twice the L2 cache: what it held is gone."""
        self._flush.zero_()

    def host_us(
        self,
        function: Function,
        copies: Sequence[Sequence[Any]],
        *,
        calls: int = HOST_CALLS,
        batches: int = HOST_BATCHES,
    ) -> float:
        """Host time of one call, the median over batches of calls without a wait between them."""
        spans = []
        inputs = copies[0]
        for _ in range(batches):
            self._synchronize()
            begin = _perf_counter()
            for _ in range(calls):
                function(*inputs)
            spans.append(_perf_counter() - begin)
        self._synchronize()
        return 1e6 * median(spans) / calls

    def burst(self, function: Function, copies: Sequence[Sequence[Any]], launches: int) -> None:
        """Launch back to back and wait for the whole device: the parent holds the clock (rules T1, T4)."""
        for index in range(launches):
            function(*copies[index % len(copies)])
        self._synchronize()

    def copy_bytes_per_second(self) -> float:
        """Bandwidth of a large device-to-device copy, counting bytes read and written; median of rounds."""
        byte_count = min(1 << 30, torch.cuda.mem_get_info()[0] // 8)
        source = torch.randint(0, 127, (byte_count,), dtype=torch.int8, device="cuda")
        target = torch.empty_like(source)
        samples, _ = self.round(lambda a, b: a.copy_(b), [(target, source)], launches=12, host_us=10)
        return 2 * byte_count / (median(samples[2:]) * 1e-6)

    def matmul_flops_per_second(self, dtype: torch.dtype) -> float | None:
        """Operations a second of a large matrix product, float32 with TF32; None for a dtype that torch.mm lacks."""
        size = 4096 if dtype == torch.float64 else 8192
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")  # a roof is what the device can do, not what PyTorch does by default
        try:
            sides = [torch.randn(size, size, device="cuda").to(dtype) for _ in range(2)]
            samples, _ = self.round(_product(dtype), [sides], launches=12, host_us=20)
        except (RuntimeError, TypeError):  # not implemented for this dtype, or too little memory
            return None
        finally:
            torch.set_float32_matmul_precision(precision)
        return 2 * size**3 / (median(samples[2:]) * 1e-6)


def _product(dtype: torch.dtype) -> Function:
    """A matrix product in that dtype; of 8-bit floats the scaled one, with a bfloat16 result."""
    if not (dtype.is_floating_point and dtype.itemsize == 1):
        return torch.mm
    one = torch.ones((), device="cuda")
    return lambda left, right: torch._scaled_mm(left, right.t(), one, one, out_dtype=torch.bfloat16)


def peak_bytes_per_second() -> float | None:
    """Theoretical memory bandwidth of the device (double data rate × bus width); None where torch does not tell."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    clock_khz = getattr(properties, "memory_clock_rate", 0)
    width_bits = getattr(properties, "memory_bus_width", 0)
    peak = 2 * clock_khz * 1e3 * width_bits / 8
    return float(peak) or None


def _persisting_l2_reader() -> Callable[[], int | None]:
    """A function that reads how many bytes of the L2 cache persisting accesses may take; None where it cannot be read.

    Takes hold of the driver's call now, before any candidate is loaded.
    """
    try:
        from cuda.bindings import driver
    except ImportError:
        return lambda: None
    read, limit = driver.cuCtxGetLimit, driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
    success = driver.CUresult.CUDA_SUCCESS

    def persisting_l2() -> int | None:
        status, value = read(limit)
        return int(value) if status == success else None

    try:
        persisting_l2()
    except RuntimeError:  # no driver: nothing is timed on a GPU
        return lambda: None
    return persisting_l2
