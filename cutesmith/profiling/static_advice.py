"""The emulated GPU's remarks as a profile's advice: the same sentences, each with the section that says what to do."""

from __future__ import annotations

from pathlib import Path

from cutesmith.profiling.ncu_advice import ARITHMETIC, BANKS, COALESCING, REGISTERS, ProfileAdvice
from cutesmith.verdicts import EmulatedAdvice, EmulateVerdict

VECTORS = "optimizations.md#16-byte-vector-loads"
ATOMICS = "patterns-memory.md#atomics"
SHUFFLES = "patterns-reduction.md#cutearchwarp_reduction-and-the-butterfly"
EXP2 = "optimizations.md#exp2-with-log2e-folded-in"
PROFILE = "profiling.md#emulate_kernelpy---profile"
PROMOTION = "anti-patterns.md#fp16-promotion-by-a-python-number"

REFERENCES = {
    "uncoalesced": COALESCING,
    "narrow": VECTORS,
    "contention": ATOMICS,
    "bank conflict": BANKS,
    "local memory": REGISTERS,
    "idle lanes": PROFILE,
    "shuffle": SHUFFLES,
    "special function": EXP2,
    "conversion": ARITHMETIC,
    "fp64": PROMOTION,
}
"""Where to read on, by the kind of remark of the emulator's `profiling.advice`."""


def static_advice(emulated: EmulateVerdict) -> tuple[ProfileAdvice, ...]:
    """The remarks of every launch, the largest share of its modelled clocks first."""
    several = len(emulated.launches) > 1
    found = [
        ProfileAdvice(
            kind=remark.kind,
            message=remark.message,
            metric="modelled clocks",
            value=round(100 * remark.share, 1),
            reference=REFERENCES.get(remark.kind, PROFILE),
            weight=remark.share,
            kernel=f"launch {number}, {_place(remark, emulated.path)}" if several else _place(remark, emulated.path),
        )
        for number, launch in enumerate(emulated.launches)
        for remark in (launch.profile.advice if launch.profile else ())
    ]
    return tuple(sorted(found, key=lambda remark: -remark.weight))


def _place(remark: EmulatedAdvice, path: str) -> str:
    if not remark.line:
        return "no known line"
    return f"line {remark.line}" if remark.file == Path(path).name else f"{remark.file}:{remark.line}"
