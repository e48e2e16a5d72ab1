"""What the studies of speed share: kernels compiled ahead in several processes, and races of fair launches.

`compile_ahead` runs `kernel_fn` of each file on tensors without values, in processes that never see the GPU, and keeps
what it compiles in object files; `kernel_of` loads them. `Race` times contenders in rounds of random order on the same
inputs: L2 is flushed before each launch, and launches are queued behind a sleep, so that the device never waits for the
host.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cutlass.cute as cute
import torch

FLUSH_BYTES = 256 << 20  # over four times the L2 of an H200
WARM_UP, AT_ONCE = 2, 6
SLEEP_CLOCKS, LONGEST_SLEEP = 1_500_000, 96_000_000

Function = Callable[..., Any]


def module_of(path: Path) -> Any:
    """The file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Tensor:
    """An argument: random normal numbers times `scale`; True in half of the places where the dtype is bool.

    Where `below` is a number, integers from 0 on that are less.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.bfloat16
    scale: float = 1.0
    channels_last: bool = False
    below: int | None = None

    @property
    def elements(self) -> int:
        """How many."""
        return torch.Size(self.shape).numel()

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        return self.elements * self.dtype.itemsize

    def make(self, device: str) -> torch.Tensor:
        """On the GPU with values; on the CPU, where only its layout counts, without."""
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        if device == "cpu":
            return torch.empty(self.shape, dtype=self.dtype, memory_format=layout)
        if self.below is not None:
            return torch.randint(self.below, self.shape, device=device, dtype=self.dtype)
        numbers = torch.randn(self.shape, device=device).to(memory_format=layout)
        return numbers > 0 if self.dtype == torch.bool else (numbers * self.scale).to(self.dtype)


def made(arguments: Sequence[Any], device: str) -> list[Any]:
    """The arguments: tensors are made, plain values stay."""
    return [argument.make(device) if isinstance(argument, Tensor) else argument for argument in arguments]


@contextmanager
def compiling_by(function: Function) -> Iterator[None]:
    """Inside, `cute.compile` is another function."""
    real = cute.compile
    cute.compile = function  # type: ignore[assignment]
    try:
        yield
    finally:
        cute.compile = real


def _object(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}_{number}.o")


@dataclass(frozen=True)
class _Launcher:
    """What `cute.compile` gives: to be called, or asked for TVM-FFI's own function."""

    function: Function

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def __tvm_ffi_object__(self) -> Function:
        return self.function


def _compile_file(path: Path, arguments: Sequence[Any]) -> str:
    """Compile what `kernel_fn` compiles for these arguments; why it failed, or nothing."""
    compile_it, count = cute.compile, 0

    def export(*arguments: Any, **options: Any) -> _Launcher:
        nonlocal count
        compile_it(*arguments, **options).export_to_c(str(_object(path, count)), f"{path.stem}_{count}")
        count += 1
        return _Launcher(lambda *_: None)

    torch.set_num_threads(1)
    torch.cuda.get_device_properties = lambda *_: SimpleNamespace(multi_processor_count=132)  # type: ignore[assignment]
    try:
        with compiling_by(export):
            module_of(path).kernel_fn(*made(arguments, "cpu"))
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"[:400]
    return ""


def _compile_apart(path: Path, arguments: Sequence[Any]) -> str:
    """The same in a process of its own: the DSL can abort, and a pool waits for ever for a process that has ended."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, _compile_file(path, arguments).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        why = said.read()
    _, status = os.waitpid(child, 0)
    return why if status == 0 else f"the compiler's process ended with {os.waitstatus_to_exitcode(status)}"


def compile_ahead(files: Sequence[tuple[Path, Sequence[Any]]], jobs: int) -> dict[Path, str]:
    """Why files failed, by file, each with the arguments of its kernel."""
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        failed = pool.starmap(_compile_apart, files, chunksize=1)
    return {path: why for (path, _), why in zip(files, failed, strict=True) if why}


def kernel_of(path: Path) -> Function:
    """The file's `kernel_fn` with what was compiled ahead, in the same order."""
    count = 0

    def load(*_: Any, **__: Any) -> _Launcher:
        nonlocal count
        code = cute.runtime.load_module(str(_object(path, count)), enable_tvm_ffi=True)
        count += 1
        return _Launcher(getattr(code, f"{path.stem}_{count - 1}"))

    kernel_fn = module_of(path).kernel_fn

    def run(*arguments: Any) -> Any:
        with compiling_by(load):
            return kernel_fn(*arguments)

    return run


@dataclass
class Race:
    """The contenders of one case and their samples in microseconds."""

    contenders: dict[str, Function]
    inputs: Sequence[Any]
    samples: dict[str, list[float]] = field(default_factory=dict)
    sleep_clocks: int = SLEEP_CLOCKS

    def run(self, rounds: int, flush: torch.Tensor) -> None:
        """Rounds of one launch each, in random order, after some to warm up."""
        self.samples = {name: [] for name in self.contenders}
        for number in range(rounds + WARM_UP):
            order = random.sample(list(self.contenders), len(self.contenders))
            for at in range(0, len(order), AT_ONCE):
                for name, microseconds in self._launch(order[at : at + AT_ONCE], flush).items():
                    self.samples[name] += [microseconds] if number >= WARM_UP else []

    def _launch(self, names: list[str], flush: torch.Tensor) -> dict[str, float]:
        """Again after a longer sleep where the device awoke before all was queued.

        Eager gradients take the host a millisecond, and then twelve launches of 79 us seemed to take 355.
        """
        events = {name: [torch.cuda.Event(enable_timing=True) for _ in range(2)] for name in names}
        awake = torch.cuda.Event()
        torch.cuda._sleep(self.sleep_clocks)  # type: ignore[no-untyped-call]
        awake.record()
        for name, (before, after) in events.items():
            flush.zero_()
            before.record()
            self.contenders[name](*self.inputs)
            after.record()
        is_late = awake.query()
        torch.cuda.synchronize()
        if is_late and self.sleep_clocks < LONGEST_SLEEP:
            self.sleep_clocks *= 2
            return self._launch(names, flush)
        return {name: before.elapsed_time(after) * 1e3 for name, (before, after) in events.items()}


def relative_error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """‖result − exact‖ / ‖exact‖ without equal infinities, 0 where both are equal; infinite where a number is NaN."""
    exact, result = exact.double(), result.double()
    counted = ~(exact.isinf() & (exact == result))
    exact, result = exact[counted], result[counted]
    difference = float((result - exact).norm())
    error = difference / float(exact.norm()) if difference else 0.0
    return error if error == error else float("inf")
