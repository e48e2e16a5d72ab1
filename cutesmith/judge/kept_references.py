"""Processes of trusted problems that outlive a judging, for a host that judges many kernels one after another.

The driver makes one CUDA context at a time, for all GPUs of a machine: 0.25 s each, and 4.3 a second at most, on two
H200s as on one. A judging needs four, for two processes that verify and two that time; with the reference's kept, two
(beside torch.compile or a library, whose process is not kept, three).
What a problem may leave behind is looked for when its judging is done (`reference_side.renewable`): a process where
something is left, or that did not answer, serves no one else. Processes of candidates are never kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cutesmith.errors import CandidateError
from cutesmith.judge.problem_process import ProblemProcess
from cutesmith.judge.reference_side.requests import Forget

FORGET_SECONDS = 30.0


class KeptReference:
    """At most one process, while it serves no one."""

    def __init__(self) -> None:
        self.process: ProblemProcess | None = None
        self._parted = ""  # why the last one was not kept

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
        if kept is not None:
            self._parted = kept.unlike(wanted) if kept.alive else "it died"
            if not self._parted:
                kept.serve_as(wanted)
                return kept
            kept.close()
        wanted.use_own_scratch()
        wanted.start()
        wanted.not_kept, self._parted = self._parted, ""
        return wanted

    def _give_back(self, process: ProblemProcess) -> None:
        """Keep it, unless it failed, or something was left when it had been told to forget."""
        self._parted = "it failed"
        if process.sound:
            try:
                left = process.call(Forget(), timeout=FORGET_SECONDS)
                self._parted = f"{', '.join(left[:3])} was left" if left else ""
            except CandidateError as error:
                self._parted = error.message
        if self._parted:
            process.close()
        else:
            self.process = process

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
