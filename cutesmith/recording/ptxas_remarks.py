"""Spill bytes, which only ptxas tells: read from its verbose output (the DSL's compiler option `remarks{ptx}`)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Function properties for (?P<kernel>\S+)")
_SPILLS = re.compile(r"(?P<stores>\d+) bytes spill stores,\s+(?P<loads>\d+) bytes spill\s+loads")


@dataclass(frozen=True)
class Spills:
    """Bytes that a thread writes to and reads from local memory because registers ran out."""

    store_bytes: int = 0
    load_bytes: int = 0


def read_remarks(text: str) -> dict[str, Spills]:
    """Spills by mangled kernel name in ptxas's verbose output; empty when it names none."""
    found: dict[str, Spills] = {}
    kernel = ""
    for line in text.splitlines():
        entry, spills = _ENTRY.search(line), _SPILLS.search(line)
        kernel = entry["kernel"] if entry else kernel
        if spills and kernel:
            found[kernel] = Spills(int(spills["stores"]), int(spills["loads"]))
    return found
