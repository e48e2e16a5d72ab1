"""The parent's part in handing over a large tensor: it asks one process for a piece, and another to take it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from cutesmith.errors import CandidateError
from cutesmith.verdicts import ExitCode

LARGEST_FILE = 1 << 30  # bytes of a tensor that goes through a file of its own, which stays mapped
WHOLE = 1 << 62  # where nobody carries pieces
PIECE_BYTES = 64 << 20
Call = Callable[[dict[str, Any]], dict[str, Any]]


def is_large(description: Mapping[str, Any], largest: int) -> bool:
    """Whether a described value goes in pieces; a scalar has no bytes."""
    return bool(description.get("bytes", 0) > largest)


def piece_file(file: str) -> Path:
    """Where the pieces of a tensor lie, each over the one before."""
    return Path(file).with_name("piece")


def hand_over(
    giver: Call, taker: Call, values: Iterable[Mapping[str, Any]], largest: int, *, keep: bool = False
) -> None:
    """Carry the large ones of described values from one process to another, each once.

    `keep`: the giver holds them on, as they may be asked for again.
    Raises CandidateError (REJECTED, rule H2) for a file that the giver's side changed, and what the calls raise.
    """
    for description in {value["file"]: value for value in values if is_large(value, largest)}.values():
        for begin in range(0, description["bytes"], PIECE_BYTES):
            giver({"do": "give", "file": description["file"], "begin": begin, "keep": keep})
            taken = taker({"do": "take", "tensor": dict(description), "begin": begin})
            if why := taken.get("meddled"):
                raise CandidateError(why, ExitCode.REJECTED, rule="H2")
