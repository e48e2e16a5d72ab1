"""Typed errors of our own stages; each carries the exit code of its kind and says what to do.

What a candidate kernel does wrong is not an exception but a verdict (`cutesmith.verdicts`); these are for broken
contracts, missing machines and our own limits.
"""

from __future__ import annotations

from cutesmith.unicode import plain_text
from cutesmith.verdicts import ExitCode, FaultKind, Mechanism, Rule, Violation


def told_of(name: str, message: str) -> str:
    """The message about a file, which begins with the file's name unless it names the file there already."""
    return message if name in message.partition(":")[0] else f"{name}: {message}"


class CutesmithError(Exception):
    """Base of all our errors: a sentence, an optional hint (what to do), and an exit code; both are plain text."""

    exit_code: ExitCode = ExitCode.INTERNAL

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message, self.hint = plain_text(message), plain_text(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(CutesmithError):
    """The command line asks for something that does not exist or does not fit together."""

    exit_code = ExitCode.USAGE


class ContractError(CutesmithError):
    """A kernel or problem file does not keep the contract; the hint shows the lines to write."""

    exit_code = ExitCode.USAGE


class UnavailableError(CutesmithError):
    """This machine cannot do it: no GPU, another SM, or a missing package (the hint is the install line)."""

    exit_code = ExitCode.UNAVAILABLE


class UnmatchedError(CutesmithError):
    """No pattern of the offline generator takes the function; the message names the first operation in the way."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, *, operation: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.operation = operation


class CandidateError(CutesmithError):
    """The candidate crashed, timed out or does not compile; `exit_code` says which, `log_tail` keeps its last lines.

    `rule` is the row of the table of exploits that it looks like, `mechanism` the check that found it, `fault` what a
    sanitizer found. `context_lost`: CUDA reported an error, after which no launch of that process can be trusted.
    `limit` says which time was up ("within 120 s of CPU time").
    """

    def __init__(
        self,
        message: str,
        exit_code: ExitCode,
        *,
        hint: str = "",
        log_tail: str = "",
        rule: Rule | None = None,
        mechanism: Mechanism = Mechanism.EXCEPTION,
        fault: FaultKind | None = None,
        context_lost: bool = False,
        limit: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code
        self.log_tail = plain_text(log_tail)
        self.rule, self.mechanism, self.fault, self.context_lost = rule, mechanism, fault, context_lost
        self.limit = limit

    def reworded(self, message: str, *, hint: str, exit_code: ExitCode | None = None) -> CandidateError:
        """The same failure in other words, for callers that know more of it."""
        return CandidateError(
            message,
            exit_code or self.exit_code,
            hint=hint,
            log_tail=self.log_tail,
            rule=self.rule,
            mechanism=self.mechanism,
            fault=self.fault,
            context_lost=self.context_lost,
            limit=self.limit,
        )

    @classmethod
    def rejecting(cls, violation: Violation, *, log_tail: str = "") -> CandidateError:
        """The end of a candidate that was caught cheating."""
        rule, mechanism = violation.rule, violation.mechanism
        return cls(violation.text, ExitCode.REJECTED, log_tail=log_tail, rule=rule, mechanism=mechanism)
