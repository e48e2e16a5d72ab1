#!/usr/bin/env python3
"""What a host gives to judges beside its GPUs: CUDA contexts a second, and loops of Python a second on its cores.

    python evals/studies/bench_host.py --out evals/results/h200/host/limits.json

Every judging makes CUDA contexts, and the driver makes one at a time. Of each line: how many processes made contexts
one after the other, on how many GPUs, under which CUDA_DEVICE_MAX_CONNECTIONS ("" for the driver's 8); contexts a
second of all, seconds from fork to exit of each. Then loops a second by cores in use: what they fall short of linear,
no engine can make good (`bench_ray_scaling.py` records that too). `siblings` is how far from a core that lies which
shares its hardware, 0 where none does: virtual machines do not say it, but a busy sibling slows a loop down. Without a
GPU the cores alone are measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from typing import Any

SECONDS = 3.0
LOOP = 200_000
SHARED = 0.85  # of the usual rate: beside a busy sibling a core is slower than that
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
CASES = (
    (1, 1, ""),
    (1, 6, ""),
    (1, 12, ""),
    (2, 12, ""),
    (1, 6, "4"),
    (1, 6, "2"),
    (1, 6, "1"),
)  # GPUs, processes, connections


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    options = _parser().parse_args(argv)
    found = {"contexts": contexts(options.seconds), "loops": loops(options.seconds)}
    offset = sibling_offset(sorted(os.sched_getaffinity(0)))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({**found, "siblings": offset}, indent=1) + "\n")
    print(f"siblings {offset}")
    for kind, lines in found.items():
        for line in lines:
            print(kind, ", ".join(f"{name} {_short(value)}" for name, value in line.items()))
    return 0


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help=f"for each line ({SECONDS:g})")
    parser.add_argument("--out", type=Path, metavar="FILE")
    return parser


def contexts(seconds: float) -> list[dict[str, Any]]:
    """One line for each case that this machine has the GPUs for. PyTorch is imported before the forks."""
    import torch

    here = torch.cuda.device_count()  # NVML counts: no context is made in this process
    return [_contexts(*case, seconds) for case in CASES if case[0] <= here]


def _contexts(gpus: int, processes: int, connections: str, seconds: float) -> dict[str, Any]:
    took, spent = beside_one_another(processes, lambda index: _context(index % gpus, connections), seconds)
    line = {"gpus": gpus, "processes": processes, "connections": connections}
    return {**line, "a_second": len(took) / spent, "seconds_each": mean(took)}


def _context(gpu: int, connections: str) -> None:
    """A process that makes a context and ends."""
    if pid := os.fork():
        if os.waitpid(pid, 0)[1]:
            raise SystemExit("a process could not make a context: its error stands above")
        return
    with ending_here():
        import torch

        os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
        os.environ.update({CONNECTIONS: connections} if connections else {})
        torch.empty(1, device="cuda")


def loops(seconds: float) -> list[dict[str, Any]]:
    """Loops of Python a second on one core, a half of them, and all."""
    cores = sorted(os.sched_getaffinity(0))
    counts = sorted({1, max(1, len(cores) // 2), len(cores)})
    return [{"cores": count, "a_second": loops_a_second(cores[:count], seconds)} for count in counts]


def loops_a_second(cores: Sequence[int], seconds: float = 1.0) -> float:
    """Of one process for each of these cores together."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        took, spent = beside_one_another(len(cores), lambda _: _loop(), seconds)
    finally:
        os.sched_setaffinity(0, before)
    return len(took) / spent


def sibling_offset(cores: Sequence[int], seconds: float = 0.15) -> int:
    """How many places after the first core its sibling comes, 0 for none: it slows it down, and does so again."""
    rates = [_rate_beside(cores[0], other, seconds) for other in cores[1:]]
    place = slowed(rates)
    again = [_rate_beside(cores[0], cores[place], seconds) for _ in range(3)] if place else []
    return place if all(rate < SHARED * median(rates) for rate in again) else 0


def slowed(rates: Sequence[float]) -> int:
    """The number, from 1, of the rate that is far below the usual one; 0 for none, and where two say nothing."""
    if len(rates) < 3 or min(rates) >= SHARED * median(rates):
        return 0
    return rates.index(min(rates)) + 1


def _rate_beside(core: int, other: int, seconds: float) -> float:
    """Loops a second of two processes, one on each of two cores."""
    took, _ = beside_one_another(2, lambda index: _loop(), seconds, pinned=(core, other))
    return len(took) / seconds


def side_by_side(cores: Sequence[int], offset: int) -> list[int]:
    """The cores in an order in which siblings follow each other."""
    if not offset:
        return list(cores)
    first = [place for place in range(len(cores)) if place // offset % 2 == 0]
    return [cores[place] for begin in first for place in (begin, begin + offset) if place < len(cores)]


def _loop() -> None:
    total = 0
    for number in range(LOOP):
        total += number


def beside_one_another(
    processes: int, work: Callable[[int], None], seconds: float, pinned: Sequence[int] = ()
) -> tuple[list[float], float]:
    """Seconds of each call in processes that call it over and over, and seconds until the last had ended.

    `pinned`: the core of each.
    """
    begin = time.time() + 0.2  # once all are there
    pipes = [_worker(index, work, begin, begin + seconds, pinned[index : index + 1]) for index in range(processes)]
    took = [value for pipe in pipes for value in json.loads(_read(pipe))]
    for _ in pipes:
        os.wait()
    return took, time.time() - begin


def _worker(index: int, work: Callable[[int], None], begin: float, end: float, core: Sequence[int]) -> int:
    """The pipe on which a new process will tell how long its calls took."""
    read, write = os.pipe()
    if os.fork():
        os.close(write)
        return read
    with ending_here():
        if core:
            os.sched_setaffinity(0, core)
        took = []
        time.sleep(max(0.0, begin - time.time()))
        while (now := time.time()) < end:
            work(index)
            took.append(time.time() - now)
        with os.fdopen(write, "w") as pipe:
            json.dump(took, pipe)
    raise AssertionError("a process that measures ends there")


@contextmanager
def ending_here() -> Iterator[None]:
    """What a forked process does within is the last that it does: nothing may return into its parent's code."""
    code = 1
    try:
        yield
        code = 0
    except BaseException:  # noqa: BLE001 - told, and the exit code says so
        traceback.print_exc()
    finally:
        os._exit(code)


def _read(pipe: int) -> str:
    """What a process has measured; raises SystemExit where it ended without."""
    with os.fdopen(pipe) as text:
        if found := text.read():
            return found
    raise SystemExit("a process ended before it had measured anything: its error stands above")


if __name__ == "__main__":
    sys.exit(main())
