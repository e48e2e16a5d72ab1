"""How an example fits an architecture that it may not have been written for.

Sources are compiled anew for each architecture, so what decides is the instructions: mma.sync and cp.async run on
whatever came after, wgmma exists on sm_90 only, tcgen05 and tensor memory on sm_100 to sm_110 only (not on sm_120).
PTX ISA, "Instructions: wgmma.mma_async" and "tcgen05", target ISA notes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cutesmith.examples.index.records import Example

NATIVE, RUNS, PORT, FOREIGN = "native", "runs", "port", "foreign"
_RUNS, _PORT = 0.75, 0.5  # of 1.0 for an example of the very architecture
_FAMILY = 0.8  # runs, and misses next to nothing: sm_80 on sm_86, sm_120 on sm_121
_NEWER = 0.3  # does not run, but the nearer its generation the more carries over
_STEP = 0.1  # what each generation between costs an example that runs
_TCGEN05 = range(100, 120)  # sm_100, sm_103, sm_107, sm_110: tcgen05 and tensor memory
_GENERATIONS = (80, 90, 100)


@dataclass(frozen=True)
class Fit:
    """A kind (`native`, `runs`, `port`, `foreign`), what it is worth (0 to 1), and one sentence unless native."""

    kind: str
    value: float
    note: str = ""


def fit(example: Example, target: str) -> Fit:
    """How `example` fits the architecture `target`: the best over the architectures that it was written for."""
    fits = (_fit_of(example, arch, target) for arch in example.arch)
    return max(fits, key=lambda one: one.value, default=Fit(FOREIGN, 0.0, "its architecture is not known"))


def _fit_of(example: Example, arch: str, target: str) -> Fit:
    have, want = (int(re.sub(r"\D", "", name)) for name in (arch, target))
    generations = sum(have < first <= want for first in _GENERATIONS) - sum(
        want < first <= have for first in _GENERATIONS
    )
    if have == want:
        return Fit(NATIVE, 1.0)
    if have > want:
        note = f"written for {arch}, which is newer than {target}: it does not run there"
        return Fit(FOREIGN, _NEWER + _STEP * generations, note)
    if have in _TCGEN05 and want in _TCGEN05:
        return Fit(RUNS, _FAMILY, f"written for {arch}, of the family of {target}")
    if have in _TCGEN05:
        note = f"written for {arch}: {target} has neither tcgen05 nor tensor memory, and 99 KB of shared memory"
        return Fit(FOREIGN, 0.0, note)
    if have == 90 and "wgmma" in example.features:
        unit, value = ("tcgen05.mma", _PORT) if want in _TCGEN05 else ("mma.sync", _PORT - _STEP)
        note = f"written for {arch}: {target} has no wgmma; pipeline and warp roles carry over, the MMA becomes {unit}"
        return Fit(PORT, value, note)
    value = _FAMILY if have // 10 == want // 10 else _RUNS - _STEP * generations
    return Fit(RUNS, value, f"written for {arch}; it runs on {target} as well, without what is new there")
