"""The parent's end of the process that holds a benchmark's problem and baselines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from cutesmith.checks.isolation.processes import fair_memory
from cutesmith.checks.isolation.worker import GIB, Limits, Worker
from cutesmith.checks.judging.problem_process import ProblemProcess, reference_call

TRUSTED = "cutesmith.checks.timing.timed:baseline_handler"
OWN = "cutesmith.checks.timing.timed:own_baseline_handler"
OWN_WITH_COMPILER = "cutesmith.checks.timing.timed:own_compiled_handler"
CACHE = Path("~/.cache/cutesmith")


@contextmanager
def baseline_process(folder: Path, limits: Limits, arch: str, *, own: bool, compiled: bool) -> Iterator[ProblemProcess]:
    """The process, to be started by its caller; `own`: the problem stands in a kernel's own file.

    What torch.compile writes for such a problem is kept for nobody: others would run it without being confined.
    """
    entry = (OWN_WITH_COMPILER if compiled else OWN) if own else TRUSTED
    with TemporaryDirectory(prefix="kernel-") as mine:  # /dev/shm may hold no programs
        cache = Path(mine) if own else CACHE.expanduser()
        caches = {"TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"), "TRITON_CACHE_DIR": str(cache / "triton")}
        if own:
            for place in caches.values():
                Path(place).mkdir()
        yield ProblemProcess(
            entry,
            own=own,
            limits=replace(limits, memory_bytes=fair_memory(96 * GIB), processes=1024),
            scratch=folder / "reference",
            gpu=True,
            environment={"CUTE_DSL_ARCH": arch, **caches},
            subject="the baseline",
        )


@contextmanager
def measuring_process(reference: Worker, limits: Limits, *, own: bool) -> Iterator[Worker]:
    """Who tells how fast this machine is: the reference's process, or one that runs no file where nobody vouches."""
    if not own:
        yield reference
        return
    with Worker(TRUSTED, limits=limits, gpu=True, subject="measuring this machine") as clean:
        reference_call(clean, {"do": "start", "device": "cuda"})
        yield clean
