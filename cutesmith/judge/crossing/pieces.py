"""The parent's part in handing over a large tensor: it asks one process for a piece, and another to take it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cutesmith.errors import CandidateError
from cutesmith.verdicts import Mechanism, Rule, Violation

LARGEST_FILE = 1 << 30  # bytes of a tensor that goes through a file of its own, which stays mapped
WHOLE = 1 << 62  # where nobody carries pieces
PIECE_BYTES = 64 << 20
Call = Callable[[dict[str, Any]], dict[str, Any]]


def is_large(description: Mapping[str, Any], largest: int) -> bool:
    """Whether a described value goes in pieces; a scalar has no bytes."""
    return bool(description.get("bytes", 0) > largest)


def piece_file(file: str, begin: int) -> Path:
    """Where the piece of a tensor lies that begins at this byte: over the one before the last, which has been taken."""
    return Path(file).with_name(f"piece{begin // PIECE_BYTES % 2}")


def hand_over(
    giver: Call, taker: Call, values: Iterable[Mapping[str, Any]], largest: int, *, keep: bool = False
) -> None:
    """Carry the large ones of described values from one process to another, each once.

    While one piece is taken, the next is given, by a thread of this process. `keep`: the giver holds them on, as they
    may be asked for again.
    Raises CandidateError (REJECTED, rule H2) for a file that the giver's side changed, and what the calls raise.
    """
    with ThreadPoolExecutor(1) as ahead:
        for description in {value["file"]: value for value in values if is_large(value, largest)}.values():
            asked = {"do": "give", "file": description["file"], "keep": keep}
            begins = range(0, description["bytes"], PIECE_BYTES)
            given = ahead.submit(giver, {**asked, "begin": 0})
            for begin in begins:
                given.result()
                if begin != begins[-1]:
                    given = ahead.submit(giver, {**asked, "begin": begin + PIECE_BYTES})
                taken = taker({"do": "take", "tensor": dict(description), "begin": begin})
                if why := taken.get("meddled"):
                    raise CandidateError.rejecting(Violation(Rule.H2, Mechanism.OUTPUT_FILES, why))
