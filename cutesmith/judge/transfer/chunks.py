"""The parent's part in handing over a large tensor: it asks one process for a chunk, and another to take it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cutesmith.errors import CandidateError
from cutesmith.judge.transfer.requests import Give, Scalar, Take, TensorFile, TensorLayout
from cutesmith.verdicts import Mechanism, Rule, Violation

LARGEST_FILE = 1 << 30  # bytes of a tensor that goes through a file of its own, which stays mapped
CHUNK_BYTES = 64 << 20


def chunk_file(file: str, begin: int) -> Path:
    """Where the chunk of a tensor lies that begins at this byte: over the one before the last, which has been taken."""
    return Path(file).with_name(f"chunk{begin // CHUNK_BYTES % 2}")


def hand_over(
    giver: Callable[[Give], object],
    taker: Callable[[Take], str],
    values: Iterable[Scalar | TensorLayout],
    largest: int,
    *,
    keep: bool = False,
) -> None:
    """Carry the large ones of described values from one process to another, each once.

    While one chunk is taken, the next is given, by a thread of this process. `keep`: the giver holds them on, as they
    may be asked for again.
    Raises CandidateError (REJECTED, rule H2) for a file that the giver's side changed, and what the calls raise.
    """
    with ThreadPoolExecutor(1) as ahead:
        tensors = [value for value in values if isinstance(value, TensorFile) and value.bytes > largest]
        for tensor in {tensor.file: tensor for tensor in tensors}.values():
            begins = range(0, tensor.bytes, CHUNK_BYTES)
            given = ahead.submit(giver, Give(tensor.file, 0, keep))
            for begin in begins:
                given.result()
                if begin != begins[-1]:
                    given = ahead.submit(giver, Give(tensor.file, begin + CHUNK_BYTES, keep))
                if why := taker(Take(tensor, begin)):
                    raise CandidateError.rejecting(Violation(Rule.H2, Mechanism.OUTPUT_FILES, why))
