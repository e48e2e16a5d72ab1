"""The parent's end of the process that holds the problem: whether it is confined, and whom it blames when it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cutesmith.errors import CandidateError, ContractError
from cutesmith.judge.entries import confined_reference, reference
from cutesmith.sandbox.messages import Entry, R, Request
from cutesmith.sandbox.worker import Limits, Pending, Worker
from cutesmith.verdicts import ExitCode


@dataclass(frozen=True)
class Untrusted:
    """A problem that no one trusts: what messages call it, and what to do about one that has to do more."""

    subject: str
    way_out: str


OWN = Untrusted(
    "the problem in the kernel's own file",
    "What needs more belongs into a problem file of its own, named with --problem: that one is trusted.",
)
ASKED = Untrusted("the problem", "If you trust it, leave out --confine-problem: it may do more then.")


def untrusted(path: Path, problem: Path, *, asked: bool) -> Untrusted | None:
    """Why the problem of a kernel file is not trusted; None if it is. `asked`: somebody wants it confined anyway."""
    if problem == path:
        return OWN
    return ASKED if asked else None


class ProblemProcess(Worker):
    """A worker for the reference's side.

    That of an untrusted problem is confined by its handler (`reference_side.confined_problem`), may start no more
    processes than a candidate's, and is blamed as that is. `serves_as`: the entries of other workers whose requests
    this one answers too; with `renewable` it can forget one problem before the next.
    """

    def __init__(
        self,
        entry: Entry,
        *,
        why: Untrusted | None,
        limits: Limits,
        subject: str = "the reference",
        renewable: bool = False,
        serves_as: Sequence[Entry] = (),
        **where: Any,
    ) -> None:
        limits = limits if why is None else replace(limits, processes=Limits().processes)
        super().__init__(entry, limits=limits, subject=subject if why is None else why.subject, **where)
        self.why = why
        self.may_be_kept = renewable and why is None
        self._entries = (entry, *serves_as)

    def _most_memory(self) -> int:
        """What one judging may hold is a share of what is free then, and the next one's share may be larger."""
        return max(super()._most_memory(), Limits().memory_bytes if self.may_be_kept else 0)

    def unlike(self, wanted: ProblemProcess) -> str:
        """Why it cannot serve as the wanted one, which would be started in another way than `serve_as` can change."""
        if self.gpu != wanted.gpu:
            return "it has a GPU" if self.gpu else "it has no GPU"
        if self.limits.file_bytes != wanted.limits.file_bytes:
            return "another limit of files"
        if wanted.entry not in self._entries:
            return "it answers other requests"
        other = sorted(dict(wanted.environment.items() - self.environment.items()))
        return f"another {' and '.join(other)}" if other else ""


def reference_process(*, why: Untrusted | None, **fields: Any) -> ProblemProcess:
    """The process of `reference_side`; fields as those of `Worker`."""
    entry = reference if why is None else confined_reference
    return ProblemProcess(entry, why=why, renewable=True, **fields)


def reference_call(worker: Worker, request: Request[R], *, timeout: float | None = None) -> R:
    """A reply of the reference's side; what goes wrong there is a broken contract, not the candidate's fault."""
    return reference_reply(worker.send(request), timeout=timeout)


def reference_reply(pending: Pending[R], *, timeout: float | None = None) -> R:
    """As `reference_call`, for a request that was sent before.

    Raises ContractError, and CandidateError for a time-out, for what this machine lacks, and for what a problem does
    that no one trusts.
    """
    try:
        return pending.reply(timeout=timeout)
    except CandidateError as error:
        if error.exit_code in (ExitCode.USAGE, ExitCode.UNAVAILABLE, ExitCode.TIMED_OUT):
            raise
        if isinstance(pending.worker, ProblemProcess) and pending.worker.why is not None:
            raise error.reworded(error.message, hint=f"{error.hint} {pending.worker.why.way_out}".strip()) from error
        raise ContractError(f"the problem cannot be used: {error.message}", hint=error.log_tail[-2000:]) from error
