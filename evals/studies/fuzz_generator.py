"""Random compositions of operations through the offline generator, each kernel run and compared with float64.

python evals/studies/fuzz_generator.py --seeds 0 2000 --out RESULTS.jsonl [--on gpu] [--jobs 16] [--time-limit 200]
python evals/studies/fuzz_generator.py --seeds 17 18 --show
python evals/studies/fuzz_generator.py --count RESULTS.jsonl

A seed decides a problem (`fuzz/cases.py`): 2 to 9 operations of all families, over inputs of any rank, dtype and
stride, with sizes such as 0, 1, primes and thousands. It is traced and drafted as `generate` does, and one kernel's
results are compared with the function in float64 (`fuzz/comparison.py`). Each of the `--jobs` processes takes a seed at
a time, and one that crashes, hangs or whose GPU gives an error is replaced. RESULTS.jsonl gets a line for each seed;
those that have one are passed over, so that a run goes on where it ended. `--show` prints each failure's problem,
`--keep` writes it as a file. Exit code 1 where a case failed, 6 where the time limit came first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

from evals.studies.fuzz.cases import make_case  # noqa: E402
from evals.studies.fuzz.checks import FAILED, HELD, REFUSED, WRONG, Outcome, check  # noqa: E402

SEED_SECONDS = 150.0  # CPU time, so that other work on the machine changes no outcome
ASLEEP_SECONDS = 10 * SEED_SECONDS  # wall time, for a process that waits for something that never comes
START_SECONDS = 120.0  # PyTorch and the DSL are imported by all workers at the same time
POISONED = ("CUDA error", "AcceleratorError", "CUDA_ERROR", "cudaError")
"""After such an error a process can use its GPU no more."""


class Worker:
    """A child process that checks seeds; `ask` waits for one seed's outcome."""

    def __init__(self, on: str) -> None:
        self._on = on
        self.process: subprocess.Popen[str] | None = None

    def ask(self, seed: int, deadline: float) -> Outcome | None:
        """The outcome; None where the deadline of the whole run came first."""
        began = time.monotonic()
        if self.process is None or self.process.poll() is not None:
            self.close()
            line = [sys.executable, __file__, "--worker", "--on", self._on]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            self.process = subprocess.Popen(line, text=True, **pipes)
            began += START_SECONDS
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError, ValueError):
            process.stdin.write(f"{seed}\n")
            process.stdin.flush()
        until = min(began + ASLEEP_SECONDS, deadline)
        if not select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
            self.close()
            if until == deadline:
                return None
            return Outcome(seed, FAILED, f"gave no outcome within {ASLEEP_SECONDS:g} s", make_case(seed).families)
        reply = process.stdout.readline()
        if not reply:
            code = process.wait()
            self.close()
            late = code == -signal.SIGPROF
            reason = f"took more than {SEED_SECONDS:g} s of CPU time" if late else f"the process ended with {code}"
            return Outcome(seed, FAILED, reason, make_case(seed).families)
        outcome = Outcome(**json.loads(reply))
        if any(word in outcome.reason for word in POISONED):
            self.close()
        return outcome

    def close(self) -> None:
        """End the process."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            with contextlib.suppress(BrokenPipeError), process:
                pass  # its pipes are closed, and its end is waited for


def serve(on: str) -> None:
    """Check the seeds of stdin, a line each; results go to stdout alone.

    SIGPROF ends the process where a seed takes too long.
    """
    import torch

    torch.set_num_threads(1)
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            signal.setitimer(signal.ITIMER_PROF, SEED_SECONDS)
            case = make_case(int(line))
            try:
                outcome = check(case, Path(folder), on)
            except Exception as error:  # what the study itself does wrong is told, too
                outcome = Outcome(case.seed, FAILED, f"study: {type(error).__name__}: {error}"[:300], case.families)
            print(json.dumps(asdict(outcome)), file=replies, flush=True)


def outcomes(seeds: Iterable[int], on: str, jobs: int, seconds: float) -> Iterator[Outcome]:
    """Those of the seeds, as they come; fewer where time is up."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for seed in seeds:
        waiting.put(seed)
    found: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()
    deadline = time.monotonic() + seconds

    def work() -> None:
        worker = Worker(on)
        try:
            while time.monotonic() < deadline and (outcome := worker.ask(waiting.get_nowait(), deadline)) is not None:
                found.put(outcome)
        except queue.Empty:
            pass
        finally:
            worker.close()
            found.put(None)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for _ in threads:
        while (outcome := found.get()) is not None:
            yield outcome


def counted(results: Iterable[Outcome]) -> Iterator[str]:
    """Lines of text: shares by what became of the cases, by family, and the classes of refusals and failures."""
    results = list(results)
    total = max(1, len(results))
    by_status = Counter(outcome.status for outcome in results)
    yield ", ".join(f"{n} {status} ({100 * n / total:.1f} %)" for status, n in by_status.most_common())
    for family in sorted({family for outcome in results for family in outcome.families}):
        of_it = Counter(outcome.status for outcome in results if family in outcome.families)
        yield f"  {family}: {', '.join(f'{n} {status}' for status, n in of_it.most_common())}"
    for status in (FAILED, WRONG, REFUSED):
        classes = Counter(_class_of(outcome.reason) for outcome in results if outcome.status == status)
        examples = {_class_of(o.reason): o.seed for o in reversed(results) if o.status == status}
        for reason, n in classes.most_common():
            yield f"{status} {n}: {reason} (such as seed {examples[reason]})"


def _class_of(reason: str) -> str:
    """A reason without its numbers."""
    return re.sub(r"-?\d[\d.e+-]*|\b(nan|inf)\b", "#", reason)[:160]


def read_results(path: Path) -> list[Outcome]:
    """The lines of a file of results; a last one that was cut is left out."""
    found = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            found.append(Outcome(**json.loads(line)))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the cases of a range of seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 200), metavar=("FIRST", "LAST"))
    parser.add_argument("--on", choices=("emulator", "gpu"), default="emulator")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=float("inf"), metavar="S")
    parser.add_argument("--again", choices=(FAILED, WRONG, REFUSED), nargs="*", default=(), help="also seeds that were")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--count", type=Path, metavar="RESULTS", help="only count what a file of results has")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        serve(options.on)
        return 0
    known = {o.seed: o for o in read_results(options.count or options.out or Path(os.devnull))}
    wanted = range(*options.seeds)
    if not options.count:
        left = [seed for seed in wanted if seed not in known or known[seed].status in options.again]
        for outcome in outcomes(left, options.on, options.jobs, options.time_limit):
            known[outcome.seed] = outcome
            _tell(outcome, options)
    print("\n".join(counted(known.values())))
    if any(outcome.status in (FAILED, WRONG) for outcome in known.values()):
        return 1
    return 0 if options.count or known.keys() >= set(wanted) else 6


def _tell(outcome: Outcome, options: argparse.Namespace) -> None:
    """Write the line of a seed, and print what is to be looked at."""
    if options.out:
        with options.out.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(outcome)) + "\n")
    if outcome.status == HELD:
        return
    print(f"{outcome.seed}: {outcome.status}: {outcome.reason}", flush=True)
    if options.show:
        print(make_case(outcome.seed).description, flush=True)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / f"seed_{outcome.seed}.py").write_text(make_case(outcome.seed).source, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
