"""A file of many kernels compiled by several processes: each runs its host code and compiles a share of the functions.

The host code is run once without compiling anything, which counts the calls of `cute.compile`; launches of what a
process leaves to others do nothing, as nothing is executed anyway.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cutesmith.compiling.requests import CompiledFile
from cutesmith.problems.contract import parse
from cutesmith.verdicts import KernelReport

SHARE = 6  # functions at least; those of a drafted network take 0.2 to 2 s each, and each share runs its host code once
SHARES_A_WORKER = 4
"""At most: the host code of DenseNet-201 (2 MB of text) takes 2.2 s, as long as four of its functions."""
FEWEST_CALLS = 4
"""Calls of `compile` in the text: a file with fewer has few kernels, and is not run once more to count them."""
NONE = (0, 0)
"""The share of a process that only counts."""
COMPILED = "(one function of a share is compiled)\n"
"""What a process that compiles a share prints after each function: its parent shows how far it is."""

Share = tuple[int, int]
"""The first call of `cute.compile` that a process makes, and the one after its last."""


def may_be_shared(path: str | Path) -> bool:
    """Whether a file's text has so many calls of a `compile` that counting what it compiles is worth a run."""
    tree = parse(Path(path).read_text(encoding="utf-8"), path)
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return sum(isinstance(each, ast.Attribute) and each.attr == "compile" for each in called) >= FEWEST_CALLS


def shares_of(calls: int, workers: int) -> list[Share]:
    """The shares of so many calls for so many workers; the last one may be shorter."""
    size = max(SHARE, -(-calls // (SHARES_A_WORKER * workers)))
    return [(first, min(first + size, calls)) for first in range(0, calls, size)]


def merged(replies: Sequence[CompiledFile]) -> CompiledFile:
    """What one process would have replied; launches of equal kernels are counted together."""
    first, kernels = replies[0], dict[object, KernelReport]()
    for kernel in (kernel for reply in replies for kernel in reply.report.kernels):
        identity = (kernel.name, kernel.grid, kernel.block, kernel.cluster, kernel.dynamic_smem_bytes)
        known = kernels.get(identity)
        kernels[identity] = kernel if known is None else replace(known, launches=known.launches + kernel.launches)
    seconds = round(sum(reply.report.compile_seconds for reply in replies), 3)
    report = replace(first.report, compile_seconds=seconds, kernels=tuple(kernels.values()))
    narrow = dict(sum((Counter(reply.narrow) for reply in replies), Counter[str]()))
    ptx, cubin = (tuple(each for reply in replies for each in getattr(reply, part)) for part in ("ptx", "cubin"))
    return CompiledFile(report, narrow, ptx, cubin, first.calls)
