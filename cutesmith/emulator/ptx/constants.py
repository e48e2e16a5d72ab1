"""Literals and constant expressions."""

from __future__ import annotations

import struct
from collections.abc import Callable

from cutesmith.emulator.ptx.syntax import Immediate
from cutesmith.emulator.ptx.tokens import Tokens, integer

_FLOAT_DIGITS = {"0f": 8, "0F": 8, "0d": 16, "0D": 16}
_MASK = 2**64 - 1

_Operator = Callable[[int, int], int]
_OPERATORS: tuple[dict[str, _Operator], ...] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"|": lambda a, b: a | b},
    {"^": lambda a, b: a ^ b},
    {"&": lambda a, b: a & b},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<": lambda a, b: int(a < b),
        "<=": lambda a, b: int(a <= b),
        ">": lambda a, b: int(a > b),
        ">=": lambda a, b: int(a >= b),
    },
    {"<<": lambda a, b: _wrap(a << (b & 63)), ">>": lambda a, b: a >> (b & 63)},
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b, "/": lambda a, b: _quotient(a, b), "%": lambda a, b: a - b * _quotient(a, b)},
)
"""Binary operators, loosest first."""


def literal(token: str) -> Immediate | None:
    """The literal `17`, `0x1F`, `0f3F800000` or `1.5`; None for anything else."""
    value = integer(token)
    if value is not None:
        return Immediate(value)
    digits = _FLOAT_DIGITS.get(token[:2])
    try:
        if digits:
            return Immediate(int(token[2:], 16), 4 * digits) if len(token) == 2 + digits else None
        if not token[:1].isdigit() or token.isdigit():  # digits alone are not an integer here: 09
            return None
        return Immediate(int.from_bytes(struct.pack("<d", float(token)), "little"), 64)
    except ValueError:
        return None


def constant(tokens: Tokens) -> Immediate:
    """A constant expression at the cursor: a literal, a negated one, or integers with the operators of C."""
    known = literal(tokens.peek())
    if known is not None and known.float_bits:
        tokens.take()
        return known
    if tokens.peek() == "-" and (known := literal(tokens.peek(1))) is not None and known.float_bits:
        tokens.position += 2
        return Immediate(known.value ^ (1 << (known.float_bits - 1)), known.float_bits)
    return Immediate(integer_constant(tokens))


def integer_constant(tokens: Tokens) -> int:
    """The value of an integer constant expression."""
    condition = _binary(tokens, 0)
    if not tokens.accept("?"):
        return condition
    first = integer_constant(tokens)
    tokens.expect(":", "of the conditional expression")
    second = integer_constant(tokens)
    return first if condition else second


def _binary(tokens: Tokens, level: int) -> int:
    if level == len(_OPERATORS):
        return _unary(tokens)
    value = _binary(tokens, level + 1)
    while (operator := _OPERATORS[level].get(tokens.peek())) is not None:
        tokens.take()
        value = operator(value, _binary(tokens, level + 1))
    return value


def _unary(tokens: Tokens) -> int:
    token = tokens.peek()
    if token == "(":
        return _parenthesised(tokens)
    if token in ("-", "+", "~", "!"):
        tokens.take()
        value = _unary(tokens)
        return {"-": -value, "+": value, "~": ~value, "!": int(not value)}[token]
    return 32 if tokens.accept("WARP_SZ") else tokens.integer("a number")


def _parenthesised(tokens: Tokens) -> int:
    tokens.take()
    if tokens.peek() in (".s64", ".u64"):  # a cast
        signed = tokens.take() == ".s64"
        tokens.expect(")", "after the type")
        value = _unary(tokens)
        return _wrap(value) if signed else value & _MASK
    value = integer_constant(tokens)
    tokens.expect(")", "after the expression")
    return value


def _wrap(value: int) -> int:
    return ((value + (1 << 63)) & _MASK) - (1 << 63)


def _quotient(a: int, b: int) -> int:
    return 0 if b == 0 else int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
