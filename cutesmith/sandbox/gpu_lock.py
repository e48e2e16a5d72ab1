"""An advisory lock on one GPU, so that measurements of several processes do not disturb each other.

Shared while something merely uses the GPU, exclusive while it is timed. Two files: all who wait for the exclusive lock
or have it hold the gate together, and a sharer enters when the gate is free. So no stream of sharers starves a timing,
and timings that wait follow each other before the GPU is shared again: a change of kind waits for the slowest sharer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cutesmith.errors import UnavailableError

POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Hold:
    """One use of a GPU: when it was asked for, had and given back, in seconds since the epoch."""

    exclusive: bool
    asked: float
    begin: float
    end: float


_recorders: list[list[Hold]] = []


@contextlib.contextmanager
def recorded_holds() -> Iterator[list[Hold]]:
    """A list that grows by every hold of this process that ends inside, in any of its threads."""
    holds: list[Hold] = []
    _recorders.append(holds)
    try:
        yield holds
    finally:
        _recorders[:] = [other for other in _recorders if other is not holds]


@contextlib.contextmanager
def gpu_lock(
    device: str = "cuda", *, exclusive: bool, timeout: float = 900.0, folder: Path | None = None
) -> Iterator[None]:
    """Hold the visible GPU, by files in `folder`; raises UnavailableError if it is not free in `timeout` seconds.

    For a `device` other than "cuda" nothing is held.
    """
    if device != "cuda":
        yield
        return
    where = Path(tempfile.gettempdir()) if folder is None else folder
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").replace("/", "_") or "0"
    paths = [where / f"cutesmith-gpu-{visible}.{name}" for name in ("gate", "lock")]
    asked, deadline = time.time(), time.monotonic() + timeout
    with contextlib.ExitStack() as stack:
        gate, lock = (stack.enter_context(_opened(path)) for path in paths)
        _acquire(gate, fcntl.LOCK_SH if exclusive else fcntl.LOCK_EX, deadline)
        _acquire(lock, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, deadline)
        if not exclusive:
            fcntl.flock(gate, fcntl.LOCK_UN)
        begin = time.time()
        try:
            yield
        finally:
            for holds in _recorders:
                holds.append(Hold(exclusive, asked, begin, time.time()))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A descriptor of the file; closing it releases what it holds. Other users may lock the same file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except PermissionError:  # another user's file: it can still be locked
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, kind: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise UnavailableError("the GPU is in use by another measurement; try again later") from None
            time.sleep(POLL_SECONDS)
