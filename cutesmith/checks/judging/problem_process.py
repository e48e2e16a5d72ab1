"""The parent's end of the process that holds the problem: whom it blames when that process fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cutesmith.checks.isolation.worker import Limits, Worker
from cutesmith.errors import CandidateError, ContractError
from cutesmith.verdicts import ExitCode

TRUSTED = "cutesmith.checks.judging.reference_side.reference:handler"
OWN = "cutesmith.checks.judging.reference_side.own_problem:handler"
OWN_SUBJECT = "the problem in the kernel's own file"
VOUCH = "What needs more belongs into a problem file of its own, named with --problem: for that one you vouch."


class ProblemProcess(Worker):
    """A worker for the reference's side; `own`: the problem stands in the kernel's own file, so that nobody vouches.

    Such a process is confined by its handler (`reference_side.own_problem`), may start no more processes than a
    candidate's, and is blamed as that is.
    """

    def __init__(self, entry: str, *, own: bool, limits: Limits, subject: str = "the reference", **where: Any) -> None:
        limits = replace(limits, processes=Limits().processes) if own else limits
        super().__init__(entry, limits=limits, subject=OWN_SUBJECT if own else subject, **where)
        self.own = own


def reference_call(worker: Worker, request: dict[str, Any]) -> dict[str, Any]:
    """A reply of the reference's side; what goes wrong there is a broken contract, not the candidate's fault."""
    worker.send(request)
    return reference_reply(worker)


def reference_reply(worker: Worker, *, timeout: float | None = None) -> dict[str, Any]:
    """As `reference_call`, for a request that was sent before.

    Raises ContractError, and CandidateError for a time-out, for what this machine lacks, and for what a problem does
    that the kernel's own file brings.
    """
    try:
        return worker.receive(timeout=timeout)
    except CandidateError as error:
        if error.exit_code in (ExitCode.USAGE, ExitCode.UNAVAILABLE, ExitCode.TIMED_OUT):
            raise
        if isinstance(worker, ProblemProcess) and worker.own:
            raise _vouched(error) from error
        raise ContractError(f"the problem cannot be used: {error.message}", hint=error.log_tail[-2000:]) from error


def _vouched(error: CandidateError) -> CandidateError:
    """The same error with the way out."""
    hint = f"{error.hint} {VOUCH}".strip()
    return CandidateError(error.message, error.exit_code, hint=hint, log_tail=error.log_tail, rule=error.rule)
