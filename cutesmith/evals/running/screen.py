"""What people see of a run, on stderr: a live table on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from cutesmith.evals.records import COMPILED, EAGER, KERNEL, Attempt
from cutesmith.evals.running.gpu_time import GpuTime

if TYPE_CHECKING:
    from cutesmith.evals.running.plan import Tally

WAITS = "alone: {unit}: too little memory beside others; {stage} again without others (--judges 1: always so)"
BASELINES = (EAGER, COMPILED)
LAST = 8  # verdicts that the live table shows
LONGEST = 150


class Screen:
    """Shows nothing; its kinds show the lines that `say` is given. Use as a context manager."""

    def __enter__(self) -> Screen:  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def say(self, text: str) -> None:
        """Show one line."""

    def finished(self, attempt: Attempt, tally: Tally) -> None:
        """An attempt has its line in results.jsonl."""
        self.say(f"[{tally.done}/{tally.total}] {described(attempt)}")

    def left_open(self, unit: str, why: str) -> None:
        """An attempt could not be judged."""
        self.say(f"open: {unit}: {why}")

    def lost_gpu(self, gpu: str, why: str) -> None:
        """A GPU does not answer: it is given no more work."""
        self.say(f"lost: {gpu}: {why}")

    def waits(self, unit: str, stage: str) -> None:
        """An attempt found the GPU's memory full, and waits until no other is there."""
        self.say(WAITS.format(unit=unit, stage=stage))

    def tick(self, tally: Tally, flight: int, gpu_time: GpuTime) -> None:
        """Time went by; `flight` attempts are on their way."""


class PlainLines(Screen):
    """A line for each attempt; falls silent when the stream takes no more."""

    def say(self, text: str) -> None:
        """Print one line."""
        try:
            print(one_line(text), file=sys.stderr, flush=True)
        except (OSError, ValueError):
            self.say = lambda text: None  # type: ignore[method-assign]


class LiveTable(Screen):
    """Counts, rate, GPU time and the last verdicts, redrawn in place."""

    def __init__(self, gpus: int) -> None:
        from rich.console import Console
        from rich.live import Live

        self._gpus, self._began = gpus, time.monotonic()
        self._last: deque[str] = deque(maxlen=LAST)
        self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=False)
        self._done_before: int | None = None

    def __enter__(self) -> Screen:  # noqa: PYI034 - typing.Self needs Python 3.11
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.__exit__(None, None, None)

    def say(self, text: str) -> None:
        """Add it to the last lines."""
        self._last.append(one_line(text))

    def finished(self, attempt: Attempt, tally: Tally) -> None:
        """Add it to the last lines; how many are done stands above them."""
        self.say(described(attempt))

    def tick(self, tally: Tally, flight: int, gpu_time: GpuTime) -> None:
        """Draw what is done, solved, the rate, how long it takes still, and how busy the GPUs are."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        seconds = time.monotonic() - self._began
        if self._done_before is None:
            self._done_before = tally.done
        rate, busy = (tally.done - self._done_before) / (seconds or 1.0), gpu_time.share(self._gpus, seconds)
        parts = [f"{tally.done}/{tally.total} done", f"{tally.solved} solved", f"{flight} on their way"]
        if rate:
            left = (tally.total - tally.done) / rate
            to_go = f"{left:.0f} s" if left < 90 else f"{left / 60:.0f} min"
            parts += [f"{60 * rate:.1f} a minute", f"about {to_go} to go"]
        if busy is not None:
            parts.append(f"GPU busy {100 * busy:.0f} %")
        if tally.open:
            parts.append(f"{len(tally.open)} open")
        bar = ProgressBar(total=max(1, tally.total), completed=tally.done)
        self._live.update(Group(Text(" · ".join(parts)), bar, *(Text(line) for line in self._last)))


def described(attempt: Attempt) -> str:
    """One attempt as a line: what it came to, how fast, who judged it."""
    sample = f" #{attempt.sample}" if attempt.sample else ""
    parts = [f"{attempt.task}{sample}: {attempt.status}{f' ({attempt.rule})' if attempt.rule else ''}"]
    mine = attempt.timings.get(KERNEL)
    if mine is not None and mine.median_us:
        parts.append(f"{mine.median_us:.1f} µs")
        theirs = {name: timing.median_us for name in BASELINES if (timing := attempt.timings.get(name)) is not None}
        parts += [f"{us / mine.median_us:.2f}x {name}" for name, us in theirs.items() if us and attempt.correct]
    elif attempt.exit_code:
        parts.append(" ".join(attempt.summary.split()))
    where = "cached" if attempt.cached else attempt.worker
    return ", ".join(filter(None, [*parts, where]))


def one_line(text: str) -> str:
    """Printable, and short enough for a line."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"


def open_screen(*, quiet: bool, gpus: int) -> Screen:
    """The screen that fits stderr."""
    if quiet:
        return Screen()
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return PlainLines()
    return LiveTable(gpus)
