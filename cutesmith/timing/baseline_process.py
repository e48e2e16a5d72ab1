"""The parent's end of the process that holds a benchmark's problem and baselines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cutesmith.errors import UsageError
from cutesmith.judge.entries import reference as reference_entry
from cutesmith.judge.problem_process import ProblemProcess, Untrusted, reference_call
from cutesmith.judge.transfer.requests import Start
from cutesmith.sandbox.processes import fair_memory
from cutesmith.sandbox.scratch import scratch_folder
from cutesmith.sandbox.worker import GIB, Limits, Worker
from cutesmith.timing.entries import baselines, compiling_baselines, confined_baselines, confined_compiling_baselines
from cutesmith.timing.requests import Baseline

CACHE = Path("~/.cache/cutesmith")


@contextmanager
def baseline_process(
    folder: Path, limits: Limits, arch: str, *, why: Untrusted | None, compiled: bool
) -> Iterator[ProblemProcess]:
    """The process, to be started by its caller; `compiled`: torch.compile is among the baselines.

    What that writes for an untrusted problem goes with the process: others would run it unconfined.
    """
    entry = compiling_baselines if compiled else baselines
    if why is not None:
        entry = confined_compiling_baselines if compiled else confined_baselines
    with scratch_folder() as mine:  # /dev/shm may hold no programs
        cache = CACHE.expanduser() if why is None else mine
        caches = {f"{name}_CACHE_DIR": str(cache / name.lower()) for name in ("TORCHINDUCTOR", "TRITON", "QUACK")}
        for place in () if why is None else caches.values():
            Path(place).mkdir()
        yield ProblemProcess(
            entry,
            why=why,
            renewable=not compiled,
            serves_as=() if compiled else (reference_entry,),
            limits=replace(limits, memory_bytes=fair_memory(96 * GIB), processes=1024),
            scratch=folder / "reference",
            gpu=True,
            environment={"CUTE_DSL_ARCH": arch, **caches},
            subject="the baseline",
        )


@contextmanager
def measuring_process(reference: Worker, limits: Limits, *, apart: bool) -> Iterator[Worker]:
    """Who tells how fast this machine is: the reference's process, or (`apart`) one that runs no problem's file."""
    if not apart:
        yield reference
        return
    with Worker(baselines, limits=limits, gpu=True, subject="measuring this machine") as clean:
        reference_call(clean, Start("cuda"))
        yield clean


def file_baseline(text: str) -> Baseline:
    """The request for a function of another file, named `file.py:function`; raises UsageError if it is not that."""
    path, _, function = text.rpartition(":")
    if not path or not function.isidentifier():
        raise UsageError(f"--baseline {text}: not of the form file.py:function")
    if not Path(path).is_file():
        raise UsageError(f"--baseline {text}: no such file")
    return Baseline(text, path=str(Path(path).resolve()), function=function)
