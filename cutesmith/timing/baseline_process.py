"""The parent's end of the process that holds a benchmark's problem and baselines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cutesmith.errors import UsageError
from cutesmith.judge.problem_process import TIMED_ENTRY as TRUSTED
from cutesmith.judge.problem_process import ProblemProcess, Untrusted, reference_call
from cutesmith.sandbox.processes import fair_memory
from cutesmith.sandbox.scratch import scratch_folder
from cutesmith.sandbox.worker import GIB, Limits, Worker

CONFINED = "cutesmith.timing.timed:confined_baseline_handler"
COMPILING = {
    TRUSTED: "cutesmith.timing.timed:compiling_baseline_handler",
    CONFINED: "cutesmith.timing.timed:confined_compiling_handler",
}
CACHE = Path("~/.cache/cutesmith")


@contextmanager
def baseline_process(
    folder: Path, limits: Limits, arch: str, *, why: Untrusted | None, compiled: bool
) -> Iterator[ProblemProcess]:
    """The process, to be started by its caller; `compiled`: torch.compile is among the baselines.

    What that writes for a problem which nobody vouches for is kept for nobody: others would run it unconfined.
    """
    entry = TRUSTED if why is None else CONFINED
    with scratch_folder() as mine:  # /dev/shm may hold no programs
        cache = CACHE.expanduser() if why is None else mine
        caches = {f"{name}_CACHE_DIR": str(cache / name.lower()) for name in ("TORCHINDUCTOR", "TRITON", "QUACK")}
        for place in () if why is None else caches.values():
            Path(place).mkdir()
        yield ProblemProcess(
            COMPILING[entry] if compiled else entry,
            why=why,
            limits=replace(limits, memory_bytes=fair_memory(96 * GIB), processes=1024),
            scratch=folder / "reference",
            gpu=True,
            environment={"CUTE_DSL_ARCH": arch, **caches},
            subject="the baseline",
        )


@contextmanager
def measuring_process(reference: Worker, limits: Limits, *, apart: bool) -> Iterator[Worker]:
    """Who tells how fast this machine is: the reference's process, or (`apart`) one that runs nobody's file."""
    if not apart:
        yield reference
        return
    with Worker(TRUSTED, limits=limits, gpu=True, subject="measuring this machine") as clean:
        reference_call(clean, {"do": "start", "device": "cuda"})
        yield clean


def file_baseline(text: str) -> dict[str, Any]:
    """The request for somebody else's function, named `file.py:function`; raises UsageError if it is not that."""
    path, _, function = text.rpartition(":")
    if not path or not function.isidentifier():
        raise UsageError(f"--baseline {text}: not of the form file.py:function")
    if not Path(path).is_file():
        raise UsageError(f"--baseline {text}: no such file")
    return {"name": text, "kind": "file", "path": str(Path(path).resolve()), "function": function}
