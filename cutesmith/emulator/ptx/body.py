"""The body of a function: declarations, scopes, labels and instructions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from cutesmith.emulator.ptx import declarations
from cutesmith.emulator.ptx.locations import Locations
from cutesmith.emulator.ptx.operands import OperandReader
from cutesmith.emulator.ptx.scopes import Scope
from cutesmith.emulator.ptx.syntax import Guard, Instruction, Label, LabelReference, Register, Variable
from cutesmith.emulator.ptx.tokens import Tokens

_LISTS = (".branchtargets", ".calltargets", ".callprototype")


@dataclass
class Body:
    """What stands between the braces of a function, all names unique."""

    registers: dict[str, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    statements: list[Instruction | Label] = field(default_factory=list)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)


class BodyParser:
    """Reads one body, from its opening brace to its closing one; `symbols` are names that the module declares."""

    def __init__(self, tokens: Tokens, locations: Locations, symbols: Collection[str]) -> None:
        self._tokens, self._locations = tokens, locations
        self._reader = OperandReader(tokens, symbols)
        self._opcodes: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._scopes = 0
        self._instructions = 0
        self.body = Body()

    def parse(self, parameters: tuple[Variable, ...]) -> Body:
        """The body of a function with these parameters and return parameters."""
        self._tokens.expect("{", "before the body of a function")
        outer = self._reader.scope
        self._open(outer)
        for parameter in parameters:
            if parameter.space == "reg":
                names = self._reader.scope.declare_register(parameter.name)
                self.body.registers.update(dict.fromkeys(names, parameter.type))
            else:
                self._reader.scope.declare_variable(parameter.name)
        while self._reader.scope is not outer:
            self._statement()
        return self.body

    def _open(self, parent: Scope) -> None:
        suffix = f".{self._scopes}" if self._scopes else ""
        self._scopes += 1
        self._reader.scope = Scope(suffix, parent, self._labels())

    def _labels(self) -> frozenset[str]:
        """Labels of the scope that begins at the cursor, without those of scopes inside."""
        items, place, depth, found = self._tokens.items, self._tokens.position, 1, set()
        while depth and items[place]:
            token = items[place]
            if token == "{":
                depth += 1
            elif token == "}":
                depth -= 1
            elif token == ":" and depth == 1 and items[place - 1][0] not in "0123456789)":
                found.add(items[place - 1])
            place += 1
        return frozenset(found)

    def _statement(self) -> None:
        tokens = self._tokens
        token = tokens.items[tokens.position]
        if token == "{":
            tokens.position += 1
            self._open(self._reader.scope)
        elif token == "}":
            tokens.position += 1
            assert self._reader.scope.parent is not None
            self._reader.scope = self._reader.scope.parent
        elif token[:1] == ".":
            self._directive(token)
        elif tokens.peek(1) == ":":
            self._label()
        elif token != ";":
            self._instruction()
        else:
            tokens.position += 1

    def _directive(self, token: str) -> None:
        tokens = self._tokens
        tokens.position += 1
        if token == ".loc":
            self._locations.read(tokens)
        elif token == ".reg":
            scope = self._reader.scope
            for name, kind, elements in declarations.registers(self._tokens):
                if scope.declares(name):
                    self._tokens.refuse(f"register `{name}` is declared twice")
                self.body.registers.update(dict.fromkeys(scope.declare_register(name, elements), kind))
        elif token[1:] in declarations.SPACES:
            scope = self._reader.scope
            for variable in declarations.variables(self._tokens, token[1:]):
                if scope.declares(variable.name):
                    self._tokens.refuse(f"variable `{variable.name}` is declared twice")
                self.body.variables.append(replace(variable, name=scope.declare_variable(variable.name)))
        elif token == ".pragma":
            self._skip_statement()
        else:
            tokens.position -= 1
            tokens.fail("a statement")

    def _skip_statement(self) -> None:
        while self._tokens.peek() not in (";", ""):
            self._tokens.take()
        self._tokens.expect(";", "at the end of a statement")

    def _label(self) -> None:
        tokens, scope = self._tokens, self._reader.scope
        name = scope.unique(tokens.name("a label"))
        tokens.position += 1
        if tokens.peek() == ".branchtargets":
            tokens.position += 1
            targets = self._reader.operands()
            if not all(isinstance(target, LabelReference) for target in targets):
                self._tokens.position -= 1
                self._tokens.fail("labels in `.branchtargets`")
            labels = tuple(target.name for target in targets if isinstance(target, LabelReference))
            self.body.branch_targets[name] = labels
        elif tokens.peek() in _LISTS:
            self._skip_statement()
        else:
            self.body.statements.append(Label(name))

    def _instruction(self) -> None:
        tokens = self._tokens
        start = tokens.position
        guard = self._guard() if tokens.items[start] == "@" else None
        opcode, modifiers = self._opcode()
        operands = self._reader.call_operands() if opcode == "call" else self._reader.operands()
        if opcode == "bra" and not (len(operands) == 1 and isinstance(operands[0], LabelReference)):
            tokens.position -= 1
            tokens.fail("one label after `bra`")
        line, number = tokens.line(start), self._instructions
        self._instructions += 1
        self.body.statements.append(
            Instruction(opcode, modifiers, operands, guard, self._locations.current, line, number)
        )

    def _opcode(self) -> tuple[str, tuple[str, ...]]:
        tokens = self._tokens
        word = tokens.items[tokens.position]
        known = self._opcodes.get(word)
        if known is None:
            if not word[:1].isalpha():
                tokens.fail("an instruction" if word else "`}` at the end of the body")
            opcode, *modifiers = word.split(".")
            known = self._opcodes[word] = (opcode, tuple(modifiers))
        tokens.position += 1
        return known

    def _guard(self) -> Guard:
        tokens = self._tokens
        tokens.position += 1
        negated = tokens.accept("!")
        name = tokens.name("a predicate after `@`")
        register = self._reader.scope.resolve(name, ())
        if not isinstance(register, Register):
            tokens.position -= 1
            tokens.refuse(f"predicate `{name}` is not declared")
        return Guard(register.name, negated)
