"""Which of the judge's mechanisms a verdict comes from, read off the sentence that only that mechanism writes."""

from __future__ import annotations

import re
from typing import Any

MECHANISMS: dict[str, str] = {
    "launches stubbed out": r"without its launches",
    "no launch at all": r"launched no CuTe kernel",
    "dispatch mode": r"(?:computes|copies tensors) with torch \(",
    "device memory kept from the host": r"host code (?:passed memory|wrote into)|can't convert cuda:0 device",
    "identities": r"the kernel replaced [\w.]+$",
    "threads counted": r"background threads? running",
    "exact types": r"tensor subclass",
    "outputs kept": r"overwrote the result of an earlier one",
    "addresses": r"shares memory with input",
    "inputs compared": r"the kernel changed input",
    "guard zones": r"the kernel wrote outside",
    "stream order": r"before the work queued ahead|after the work of its stream",
    "replayed": r"returns an old result",
    "sanitizer of the emulated GPU": r"sanitizer: |\d bytes at (?:global|shared) address|misaligned address",
    "timed outputs": r"a timed launch gave a wrong result",
    "persisting L2": r"persisting L2",
    "warm-up taken anew": r"warm-up",
    "physical floor": r"is impossible",
    "parent's clock": r"by the parent's clock|parent's clock saw",
    "private pipe": r"pipe that carries the result",
    "poison": r"were never written",
    "structure": r"output \d+ has (?:dtype|shape|strides)|kernel_fn returns (?:a tensor|a tuple)",
    "derived inputs": r"derived: ",
    "float64 reference": r"out of tolerance|elements differ|are NaN where|NaN or Inf|root mean square|everywhere where",
    "audit of the problem": r"A kernel could write that result|Leave it out, or draw inputs|^audit",
    "time limit": r"did not finish within|did not end within",
    "memory limit": r"of host memory|can't allocate memory|MemoryError",
    "file limits": r"File too large|Permission denied|Read-only|Errno 13",
    "system call filter": r"Operation not permitted|Errno 1\]",
    "vanished worker": r"left the process|was ended by|SystemExit",
    "contract": r"not a tensor or a tuple",
}
"""Name -> the pattern of its sentences; the first that matches counts."""

STATIC = "static check"
OTHER = "an exception"
_AT_LINE = re.compile(r"^[\w.]+\.py:\d+: .*; ", re.DOTALL)


def mechanism_of(verdict: dict[str, Any], summary: str) -> str:
    """The mechanism behind a verdict that is not a pass; "an exception" when the kernel merely raised."""
    if verdict.get("rule") and not verdict.get("cases") and not verdict.get("timings") and _AT_LINE.match(summary):
        return STATIC
    text = f"audit {summary}" if verdict.get("stage") == "audit" else summary
    found = (name for name, pattern in MECHANISMS.items() if re.search(pattern, text, re.MULTILINE))
    return next(found, OTHER)
