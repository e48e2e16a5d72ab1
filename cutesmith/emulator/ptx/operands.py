"""Operands of an instruction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cutesmith.emulator.ptx.constants import constant, integer_constant, literal
from cutesmith.emulator.ptx.scopes import Scope
from cutesmith.emulator.ptx.syntax import Address, Immediate, Operand, Pair, Register, Sink, Symbol, Vector
from cutesmith.emulator.ptx.tokens import Tokens

_SINK = Sink()
_ENDS = (",", ";", "}", "]", ")", "|")


class OperandReader:
    """Reads operands at the cursor, in the scope that is set."""

    def __init__(self, tokens: Tokens, symbols: Iterable[str]) -> None:
        self.tokens = tokens
        self.scope = Scope("", None, frozenset())
        self._symbols = symbols
        self._literals: dict[str, Immediate] = {}

    def operands(self) -> tuple[Operand, ...]:
        """Operands with commas between them, up to and with the semicolon."""
        tokens, found = self.tokens, []
        if tokens.accept(";"):
            return ()
        if tokens.peek() in ("}", ""):
            tokens.fail("`;` after an instruction")
        while True:
            found.append(self.operand())
            following = tokens.items[tokens.position]
            if following == ";":
                tokens.position += 1
                return tuple(found)
            if following != ",":
                tokens.fail("`,` or `;` after an operand")
            tokens.position += 1

    def operand(self) -> Operand:
        """One operand."""
        tokens = self.tokens
        first = self._single(tokens.items[tokens.position])
        if tokens.items[tokens.position] != "|":
            return first
        tokens.position += 1
        return Pair(first, self._single(tokens.items[tokens.position]))

    def call_operands(self) -> tuple[Operand, ...]:
        """`(returns), callee, (arguments), prototype;` as (Vector, callee, Vector[, name of the prototype])."""
        tokens, returns, arguments = self.tokens, Vector(()), Vector(())
        if tokens.peek() == "(":
            returns = self._list(")")
            tokens.expect(",", "after the return parameters of a call")
        callee = self._name()
        rest: tuple[Operand, ...] = ()
        while tokens.accept(","):
            if tokens.peek() == "(":
                arguments = self._list(")")
            else:
                rest = (self._name(),)
        tokens.expect(";", "after a call")
        return (returns, callee, arguments, *rest)

    def _single(self, token: str) -> Operand:
        known = self.scope.known.get(token)
        if known is not None:
            self.tokens.position += 1
            return known if type(known) is not Symbol else self._with_offset(known)
        if token == "[":
            return self._address()
        if token == "{":
            return self._list("}")
        if token[:1].isdigit() or token in ("-", "(", "~"):
            if self.tokens.peek(1) not in _ENDS:
                return constant(self.tokens)
            known = self._literals.get(token) or literal(token)
            if known is None:
                self.tokens.fail("an operand")
            self._literals[token] = known
            self.tokens.position += 1
            return known
        if token == "!":
            self.tokens.take()
            register = self._name()
            if not isinstance(register, Register):
                self.tokens.position -= 1
                self.tokens.fail("a predicate after `!`")
            return replace(register, negated=True)
        return self._name()

    def _name(self) -> Operand:
        tokens = self.tokens
        if tokens.accept("_"):
            return _SINK
        name = tokens.name("an operand")
        found = self.scope.resolve(name, self._symbols)
        if found is None:
            tokens.position -= 1
            tokens.refuse(f"`{name}` is not declared")
        return self._with_offset(found) if isinstance(found, Symbol) else found

    def _with_offset(self, symbol: Symbol) -> Symbol:
        if self.tokens.items[self.tokens.position] not in ("+", "-"):
            return symbol
        return replace(symbol, offset=symbol.offset + self._offset())

    def _offset(self) -> int:
        negative = self.tokens.take() == "-"
        value = integer_constant(self.tokens)
        return -value if negative else value

    def _list(self, end: str) -> Vector:
        tokens, found = self.tokens, []
        tokens.take()
        while not tokens.accept(end):
            found.append(self.operand())
            if not tokens.accept(",") and tokens.peek() != end:
                tokens.fail(f"`,` or `{end}`")
        return Vector(tuple(found))

    def _address(self) -> Address:
        tokens = self.tokens
        tokens.take()
        base, offset = self._base()
        coordinates: list[Operand] = []
        while tokens.accept(","):
            operand = self.operand()
            coordinates += operand.elements if isinstance(operand, Vector) else [operand]
        tokens.expect("]", "after an address")
        return Address(base, offset, tuple(coordinates))

    def _base(self) -> tuple[Register | Symbol | Immediate, int]:
        tokens = self.tokens
        base = self._single(tokens.items[tokens.position])
        if not isinstance(base, (Register, Symbol, Immediate)):
            tokens.position -= 1
            tokens.fail("a register, a variable or a number in an address")
        offset = self._offset() if tokens.items[tokens.position] in ("+", "-") else 0
        if isinstance(base, Symbol):  # the offset belongs to the address, wherever it was read
            return replace(base, offset=0), base.offset + offset
        return base, offset
