"""Lengths of lines that a launch of their own transforms (Fourier): products of small primes."""

from __future__ import annotations

import math

LEAST, MOST = 2, 8192
"""Complex numbers of a line: 64 KB of shared memory hold the longest."""
PRIMES = (2, 3, 5, 7, 11, 13)


def prime_factors(number: int) -> list[int]:
    """Those of `PRIMES`, each as often as it divides the number."""
    found = list[int]()
    for prime in PRIMES:
        while number % prime == 0:
            number //= prime
            found.append(prime)
    return found


def complex_count(length: int, *, in_pairs: bool) -> int:
    """Complex numbers of a line: real ones of an even length are taken two and two."""
    return length // 2 if in_pairs and length % 2 == 0 else length


def is_taken(length: int, is_real: bool) -> bool:
    """Whether a line has small factors, and fits."""
    count = complex_count(length, in_pairs=is_real)
    return LEAST <= count <= MOST and math.prod(prime_factors(count)) == count
