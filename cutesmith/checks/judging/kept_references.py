"""Processes of trusted problems that outlive a judging, for a host that judges many kernels one after another.

The driver makes one CUDA context at a time, for all GPUs of a machine: 0.25 s each, and 4.3 a second at most, on two
H200s as on one. A judging needs four, for two processes that verify and two that time; with the reference's kept, two.
What a problem may leave behind is looked for when its judging is done (`reference_side.traces`): a process where
something is left, or that did not answer, serves nobody else. Processes of candidates are never kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cutesmith.checks.judging.problem_process import ProblemProcess
from cutesmith.errors import CandidateError

FORGET_SECONDS = 30.0


class KeptReference:
    """At most one process, while it serves nobody."""

    def __init__(self) -> None:
        self.process: ProblemProcess | None = None

    @contextlib.contextmanager
    def serving(self, wanted: ProblemProcess) -> Iterator[ProblemProcess]:
        """The one that is kept, if it can do what is wanted, else that, started; kept afterwards if it is sound."""
        process = self._take(wanted)
        try:
            yield process
        except Exception:
            self._give_back(process)
            raise
        except BaseException:  # this host is asked to end
            process.close()
            raise
        self._give_back(process)

    def _take(self, wanted: ProblemProcess) -> ProblemProcess:
        kept, self.process = self.process, None
        if kept is not None and kept.alive and kept.can_serve_as(wanted):
            kept.serve_as(wanted)
            return kept
        if kept is not None:
            kept.close()
        wanted.use_own_scratch()
        wanted.start()
        return wanted

    def _give_back(self, process: ProblemProcess) -> None:
        with contextlib.suppress(CandidateError):
            if process.sound and not process.call({"do": "forget"}, timeout=FORGET_SECONDS)["left"]:
                self.process = process
                return
        process.close()

    def close(self) -> None:
        """End it."""
        kept, self.process = self.process, None
        if kept is not None:
            kept.close()


_hosts: list[KeptReference] = []


@contextlib.contextmanager
def keeping_references() -> Iterator[KeptReference]:
    """Within it this process, which judges one kernel at a time, keeps the reference's process between judgings."""
    kept = KeptReference()
    _hosts.append(kept)
    try:
        yield kept
    finally:
        _hosts.remove(kept)
        kept.close()


@contextlib.contextmanager
def serving(wanted: ProblemProcess) -> Iterator[ProblemProcess]:
    """A process for one judging, as `wanted` describes it; one that is kept serves where this host keeps any."""
    if not (_hosts and wanted.may_be_kept):
        with wanted:
            yield wanted
        return
    with _hosts[-1].serving(wanted) as process:
        yield process
