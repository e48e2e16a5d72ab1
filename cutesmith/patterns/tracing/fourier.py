"""Fourier transforms along the last dimension of complex numbers, which are pairs of real ones here.

Lines of float32 whose length has small factors are transformed by a launch of their own (`patterns/transforms/`), for
which there are two operations here that only the tracer knows. Others become products with tables of cosines and sines.

A table for all of a line grows with the square of its length. A line of n1 * n2 numbers that needs a large one is
transformed in two steps: lines of n1, then lines of n2, and between them a turn of each number by the angle of its
place (Cooley and Tukey 1965). Number n2 * j1 + j2 of the line is row j1, column j2; number k1 + n1 * k2 of the
spectrum is row k2, column k1. So neither the line nor the spectrum is put into another order.
"""

from __future__ import annotations

import math

import torch

from cutesmith.patterns.graph.line_lengths import is_taken

LONG = 4096
"""Numbers of a line from which on it has two tables: one would have 64 MB."""
FEWEST = 8
"""Numbers of the shorter step of two: fewer do not fill a tile of the tensor core along k."""

Parts = tuple[torch.Tensor, torch.Tensor | None]
"""Real and imaginary numbers; None where those are 0, or not wanted."""

_OF_PARTS = "(Tensor real, Tensor? imag, int length, int sign, int wanted) -> (Tensor, Tensor)"
torch.library.define("cutesmith::fourier", _OF_PARTS)
torch.library.define("cutesmith::fourier_of_half", "(Tensor real, Tensor imag, int length) -> Tensor")


@torch.library.impl("cutesmith::fourier", "Meta")
def _fourier(
    real: torch.Tensor, imag: torch.Tensor | None, length: int, sign: int, wanted: int
) -> tuple[torch.Tensor, torch.Tensor]:
    return real.new_empty((*real.shape[:-1], wanted)), real.new_empty((*real.shape[:-1], wanted))


@torch.library.impl("cutesmith::fourier_of_half", "Meta")
def _fourier_of_half(real: torch.Tensor, imag: torch.Tensor, length: int) -> torch.Tensor:
    return real.new_empty((*real.shape[:-1], length))


def transform(given: Parts, length: int, sign: int, wanted: int, *, only_real: bool = False) -> Parts:
    """The first `wanted` of the sums of z[j] * exp(sign * 2πi * j * k / length), for parts z of (…, j).

    Numbers that are not given, up to the length, are 0.
    """
    if given[0].dtype == torch.float32 and given[0].shape[-1] == length and is_taken(length, given[1] is None):
        real, imag = torch.ops.cutesmith.fourier(*given, length, sign, wanted)
        return real, None if only_real else imag
    if outer := _outer(length):
        return _in_two_steps(given, (outer, length // outer), sign, wanted, only_real)
    lines = _joined(given, -1)
    table = _table(given[0].shape[-1], wanted, length, sign, lines, given[1] is not None, only_real)
    return (lines @ table, None) if only_real else _halves(lines @ table, -1)


def real_sums(real: torch.Tensor, imag: torch.Tensor, length: int) -> torch.Tensor:
    """The sums of z[j] * exp(2πi * j * k / length) where z is given up to the middle: the rest is its conjugate.

    Imaginary parts of the first and of the middle number are taken for 0.
    """
    count = real.shape[-1]
    if real.dtype == torch.float32 and count == length // 2 + 1 and is_taken(length, is_real=True):
        return torch.ops.cutesmith.fourier_of_half(real, imag, length)  # type: ignore[no-any-return]
    place = torch.arange(count, device=real.device)
    once = (place == 0) | (2 * place == length)
    counted = torch.where(once, 1.0, 2.0).to(real.dtype)
    return transform((real * counted, torch.where(once, 0.0, imag * counted)), length, 1, length, only_real=True)[0]


def _outer(length: int) -> int:
    """The largest divisor up to the root of a long line's length, 0 where one table is as good."""
    if length < LONG:
        return 0
    return next((n for n in range(math.isqrt(length), FEWEST - 1, -1) if length % n == 0), 0)


def _in_two_steps(given: Parts, sizes: tuple[int, int], sign: int, wanted: int, only_real: bool) -> Parts:
    outer, inner = sizes
    count = given[0].shape[-1]
    rows, wanted_rows = -(-count // inner), -(-wanted // outer)
    first, second = given
    lines = _joined((_in_rows(first, rows, inner), None if second is None else _in_rows(second, rows, inner)), -2)
    table = _table(rows, outer, outer, sign, lines, second is not None, False)
    real, imag = (part.mT for part in _halves(table.mT @ lines, -2))
    cosines, sines = _waves(inner, outer, outer * inner, lines)
    sines = sign * sines
    of_real, of_imag = torch.stack((cosines, sines)), torch.stack((-sines, cosines))  # small, and stored once
    turned = (real.unsqueeze(-3) * of_real + imag.unsqueeze(-3) * of_imag).flatten(-3, -2)
    table = _table(inner, wanted_rows, inner, sign, lines, True, only_real)
    both = table.mT @ turned
    if only_real:
        return both.flatten(-2)[..., :wanted], None
    real, imag = (part.flatten(-2)[..., :wanted] for part in _halves(both, -2))
    return real, imag


def _in_rows(part: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Lines in rows, the last of them filled up with 0."""
    count = part.shape[-1]
    if count == rows * columns:
        return part.reshape(*part.shape[:-1], rows, columns)
    place = torch.arange(rows, device=part.device)[:, None] * columns + torch.arange(columns, device=part.device)
    return torch.where(place < count, part[..., place.clamp(max=count - 1)], 0.0)


def _joined(parts: Parts, dim: int) -> torch.Tensor:
    real, imag = parts
    return real if imag is None else torch.cat((real, imag), dim)


def _halves(both: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One product gives both parts, side by side."""
    half = both.shape[dim] // 2
    return both.narrow(dim, 0, half), both.narrow(dim, half, half)


def _table(
    rows: int, columns: int, length: int, sign: int, like: torch.Tensor, has_imag: bool, only_real: bool
) -> torch.Tensor:
    """What real numbers, and imaginary ones below them, are multiplied by for both parts side by side."""
    cosines, sines = _waves(rows, columns, length, like)
    sines = sign * sines
    if only_real:
        return torch.cat((cosines, -sines), 0) if has_imag else cosines
    upper = torch.cat((cosines, sines), 1)
    return torch.cat((upper, torch.cat((-sines, cosines), 1)), 0) if has_imag else upper


def _waves(rows: int, columns: int, length: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of 2π · row · column / length: [rows, columns]; the product stays an integer until it is an angle."""
    row, column = (torch.arange(size, device=like.device) for size in (rows, columns))
    turns = row[:, None] * column % length
    angle = turns.double() * (2 * math.pi / length)
    return angle.cos().to(like.dtype), angle.sin().to(like.dtype)
