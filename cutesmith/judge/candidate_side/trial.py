"""The handler of the candidate's process: a candidate whose refusals are told apart from its mistakes.

On the emulated GPU it also says what a call cost, ends one that costs too much, and records the launches of a call at
full size.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from cutesmith.emulator.errors import EndlessLoop, LaunchRefused
from cutesmith.emulator.faults import own_line
from cutesmith.errors import CandidateError
from cutesmith.judge.candidate_side.candidate import Candidate, candidate_code, load_kernel
from cutesmith.judge.candidate_side.declining import declines
from cutesmith.judge.candidate_side.recorded_call import RecordedCall, record_call
from cutesmith.verdicts import ExitCode

MOST_STEPS = 100_000_000  # of a limited call (emulator.machine.settings): about ten seconds


class Trial(Candidate):
    """Requests as those of `Candidate`, {"do": "full_size", "inputs", "fresh"} and {"do": "opcodes"}.

    Of "run", "may_decline": a refusal is a reply, {"declined": why}; "limited": so is a call that takes too many steps,
    {"stopped": why}; "fresh": the file is loaded anew, as nobody promised that one copy takes several shapes.
    """

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """Dispatch on `request["do"]`."""
        own = {"full_size": self.full_size, "opcodes": self.opcodes}
        return own.get(request["do"], super().handle)(request)

    def opcodes(self, request: dict[str, Any]) -> dict[str, Any]:
        """How often each full opcode stands in the kernels that were executed, and the line where it does first."""
        counts: Counter[str] = Counter()
        lines: dict[str, str] = {}
        for program in self.emulated.programs if self.device == "emulator" else ():
            for instruction in program.instructions:
                counts[instruction.full_opcode] += 1
                lines.setdefault(instruction.full_opcode, own_line(instruction.location, self.path))
        return {"counts": counts, "lines": lines}

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run each step; what it cost, or why nothing came of it."""
        if request.get("fresh"):
            with candidate_code(self.path):
                self.kernel_fn = load_kernel(self.path)
        before = self._launches()
        try:
            with self._limits(request.get("limited", False)):
                reply = super().run(request)
        except CandidateError as error:
            if (why := self._excused(error, request)) is None:
                raise
            return {**why, "changes": self.changes()}
        return {**reply, **self._cost(before, len(request["steps"]))}

    def _excused(self, error: CandidateError, request: dict[str, Any]) -> dict[str, str] | None:
        if request.get("limited") and isinstance(error.__cause__, EndlessLoop):
            return {"stopped": f"more than {MOST_STEPS:,} steps"}
        if not request.get("may_decline"):
            return None
        if error.exit_code == ExitCode.UNAVAILABLE:  # an instruction that only these inputs need
            return {"stopped": error.message}
        return {"declined": error.message} if declines(error.__cause__) else None

    @contextlib.contextmanager
    def _limits(self, limited: bool) -> Iterator[None]:
        if not limited:
            yield
            return
        usual = self.emulated.settings
        self.emulated.settings = replace(usual, step_limit=MOST_STEPS)
        try:
            yield
        finally:
            self.emulated.settings = usual

    def _cost(self, before: int, steps: int) -> dict[str, Any]:
        """Lane-instructions of a step, and the blocks of each of its launches."""
        if self.device != "emulator":
            return {}
        reports = self.emulated.launches[before:]
        blocks = [prod(report.launch.grid) for report in reports[: len(reports) // steps]]
        return {"instructions": sum(report.instructions for report in reports) // steps, "blocks": blocks}

    def full_size(self, request: dict[str, Any]) -> dict[str, Any]:
        """Record the launches of a call on inputs of these layouts; `error` says why a GPU would not do them."""
        try:
            with candidate_code(self.path):
                kernel = load_kernel(self.path) if request["fresh"] else self.kernel_fn
                assert kernel is not None, "load comes first"
                call = record_call(self.emulated, kernel, request["inputs"], self.path)
        except CandidateError as error:
            if error.exit_code in (ExitCode.UNAVAILABLE, ExitCode.INTERNAL):
                call = RecordedCall([], {}, error.message)
            else:
                return {"error": error.message, "exit_code": int(_code(error)), "changes": self.changes()}
        return {**vars(call), "error": "", "changes": self.changes()}


def _code(error: CandidateError) -> ExitCode:
    """A launch that the hardware refuses does not compile into one that runs, as `cutesmith compile` has it."""
    refused = isinstance(error.__cause__, LaunchRefused)
    return ExitCode.DOES_NOT_COMPILE if refused else error.exit_code
