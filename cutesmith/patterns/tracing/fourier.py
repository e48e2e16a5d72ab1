"""Fourier transforms along the last dimension as products of real matrices with tables of cosines and sines.

A table for all of a line grows with the square of its length. A line of n1 * n2 numbers that needs a large one is
transformed in two steps: lines of n1, then lines of n2, and between them a turn of each number by the angle of its
place (Cooley and Tukey 1965). Number n2 * j1 + j2 of the line is row j1, column j2; number k1 + n1 * k2 of the
spectrum is row k2, column k1. So neither the line nor the spectrum is put into another order.
"""

from __future__ import annotations

import math

import torch

LARGE = 1.1e6
"""Numbers of a table that two steps spare: one step is faster with those of a real line of 1024 and a complex one of
512. Frames of 512 took 1113 us on an H200 in two steps, most of it to split and to turn badly strided numbers."""
LONG_MULTIPLE = 512
"""Lines of a multiple of this are cut where their table is large."""
LONG = 4096
"""Others from here on, with a table of 64 MB."""
FEWEST = 8
"""Numbers of the shorter step of two: fewer do not fill a tile of the tensor core along k."""

Parts = tuple[torch.Tensor, torch.Tensor | None]
"""Real and imaginary numbers; None where those are 0, or not wanted."""


def transform(given: Parts, length: int, sign: int, wanted: int, *, only_real: bool = False) -> Parts:
    """The first `wanted` of the sums of z[j] * exp(sign * 2πi * j * k / length), for parts z of (…, j).

    Numbers that are not given, up to the length, are 0.
    """
    has_imag = given[1] is not None
    rows, columns = given[0].shape[-1], wanted
    if not only_real and length % LONG_MULTIPLE == 0:
        columns += columns % 2  # TMA stores lines of both halves, and no launch has to move them
    outer = _outer(length, rows * (1 + has_imag) * columns * (2 - only_real))
    if outer:
        return _in_two_steps(given, (outer, length // outer), sign, wanted, only_real)
    lines = _joined(given, -1)
    table = _table(rows, columns, length, sign, lines, has_imag, only_real)
    if only_real:
        return lines @ table, None
    real, imag = (part[..., :wanted] for part in _halves(lines @ table, -1))
    return real, imag


def _outer(length: int, numbers: int) -> int:
    """The largest divisor up to the root of a length whose table has so many numbers, 0 where one step is as good."""
    if numbers <= LARGE or (length < LONG and length % LONG_MULTIPLE):
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
