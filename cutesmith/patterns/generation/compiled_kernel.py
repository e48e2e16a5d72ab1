"""Verification of a kernel file that was compiled already, where nothing is executed: no kernel is compiled again.

The compile stage has run the host code on `get_inputs()` and the input sets, and compiled and checked every kernel that
they launch. What is left is what the host code returns and does to its inputs (`host_code`).
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.verification import Judge, verify_kernel
from cutesmith.problems import contract
from cutesmith.sandbox.messages import HandlerMaker
from cutesmith.verdicts import VerifyVerdict


def verify_compiled(path: Path, source: str, options: VerifyOptions) -> VerifyVerdict:
    """Everything but the values and the compilation of a file whose text `source` compiled for `options.arch`.

    A file that has another text by now is compiled again.
    """
    if contract.problem_source(path) != source:
        return verify_kernel(path, options, on="compile")
    begin = time.monotonic()
    verdict = Judge(path, contract.problem_of(path, None), options, entry=host_code).verdict("compile")
    return replace(verdict, seconds=round(time.monotonic() - begin, 3))


def host_code() -> HandlerMaker:
    """The process that holds a compiled candidate."""
    from cutesmith.patterns.generation.host_code import HostCode

    return HostCode
