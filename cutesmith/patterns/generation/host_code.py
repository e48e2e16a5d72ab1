"""The candidate's side of a verification that compiles nothing: in place of compiled functions it calls nothing."""

from __future__ import annotations

from dataclasses import replace

from cutesmith.compiling.shares import NONE
from cutesmith.judge.candidate_side.requests import Record, Recorded
from cutesmith.judge.candidate_side.trial import Trial
from cutesmith.judge.transfer.requests import Start


class HostCode(Trial):
    """A candidate whose host code runs; a call of a compiled function counts as a launch."""

    def start(self, request: Start) -> None:
        """Bring up libraries, and leave out every call of `cute.compile`."""
        super().start(request)
        self.session.share = NONE

    def record(self, request: Record) -> Recorded:
        """Run `kernel_fn` on inputs without values; which compiled functions it called, and what it returned."""
        before = self.session.left_out
        recorded = super().record(request)
        return replace(recorded, launches=("compiled function",) * (self.session.left_out - before))
