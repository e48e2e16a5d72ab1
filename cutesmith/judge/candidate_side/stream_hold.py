"""The current stream held until the host lets go: work that does not wait for that stream runs ahead of it (rule T1).

A wait of fixed length does not do: how long the host takes depends on who else uses the machine. With ten judgings at
once on an H200 `t1_early_start` passed one of 20 ms.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from cutesmith.errors import UnavailableError

LONGEST_HOLD_S = 1.0  # a kernel_fn that itself waits for the device waits so long, once an input set
SIDE_WORK_S = 0.05  # at most: it ends with the turn of this process on a GPU that others share
SIDE_TURNS = 2

HOLD = """\
ld.relaxed.sys.global.u64 %d1, [%d0+8];
mov.u64 %d2, %globaltimer;
WAIT:
ld.relaxed.sys.global.u32 %r1, [%d0];
setp.ne.u32 %p1, %r1, 0;
@%p1 bra LET_GO;
nanosleep.u32 1000;
mov.u64 %d3, %globaltimer;
sub.u64 %d3, %d3, %d2;
setp.lt.u64 %p1, %d3, %d1;
@%p1 bra WAIT;
LET_GO:
ret;
"""
"""PTX that waits until the word at the address %d0 is set, or for the nanoseconds 8 bytes behind it."""
_MODULE = f"""\
.version 7.0
.target sm_70
.address_size 64
.visible .entry hold(.param .u64 words) {{
.reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %d<4>;
ld.param.u64 %d0, [words];
{HOLD}}}
"""
_monotonic = time.monotonic  # captured, as all below, before any candidate is loaded
_cuda_synchronize = torch.cuda.synchronize
_current_stream: Any = torch.cuda.current_stream


class StreamHold:
    """Holds the current CUDA stream; made before a candidate is loaded, while the driver may still load code.

    Raises UnavailableError where the driver refuses the code.
    """

    def __init__(self) -> None:
        from cuda.bindings import driver

        _cuda_synchronize()  # makes the context, if there is none yet
        self._launch: Callable[..., Any] = driver.cuLaunchKernel
        self._stream: Callable[[int], Any] = driver.CUstream
        module = _answered(driver.cuModuleLoadData(_MODULE.encode() + b"\0"))
        self._function = _answered(driver.cuModuleGetFunction(module, b"hold"))
        longest_ns = int(LONGEST_HOLD_S * 1e9)
        self._words = torch.tensor([1, longest_ns, 1, longest_ns]).pin_memory()  # the device reads them where they lie
        self._held, self._open = (self._words.data_ptr() + offset for offset in (0, 16))
        self._let_go = ctypes.c_int64.from_address(self._held)
        cuda: Any = torch.cuda
        self._side, self._side_done = cuda.Stream(priority=-1), cuda.Event()
        self._queue(self._side, self._open)
        _cuda_synchronize()

    def begin(self) -> None:
        """What is queued on the current stream from now on waits for the end of `ending`, at most LONGEST_HOLD_S."""
        _cuda_synchronize()
        self._let_go.value = 0
        self._queue(_current_stream(), self._held)

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Let go after the block, once work on other streams has had its turn; at once when the block raises."""
        try:
            yield
            if not self._let_go.value:
                self._give_others_a_turn()
        finally:
            self._let_go.value = 1

    def _give_others_a_turn(self) -> None:
        """Until work on a stream of ours, queued after all that the block queued, is done, or for SIDE_WORK_S."""
        for _ in range(SIDE_TURNS):
            self._queue(self._side, self._open)
            self._side_done.record(self._side)
            end = _monotonic() + SIDE_WORK_S
            while not self._side_done.query() and _monotonic() < end:
                pass

    def _queue(self, stream: Any, words: int) -> None:
        arguments = ((words,), (ctypes.c_uint64,))
        _answered(self._launch(self._function, 1, 1, 1, 1, 1, 1, 0, self._stream(stream.cuda_stream), arguments, 0))


def _answered(answer: tuple[Any, ...]) -> Any:
    """What the driver answered, without its code. Raises UnavailableError for every code but success."""
    code, *values = answer
    if int(code):
        raise UnavailableError(
            f"the driver answered {code!r} to the judge's own kernel",
            hint="Try `nvidia-smi`; in a container the driver's JIT compiler (capability compute) must be there.",
        )
    return values[0] if values else None
