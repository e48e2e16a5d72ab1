"""PTX text to a syntax tree: everything that the DSL's compiler writes, inline assembly included.

Grammar: PTX ISA 9, https://docs.nvidia.com/cuda/parallel-thread-execution/#syntax and the chapters that follow it.
"""

from __future__ import annotations

from cutesmith.emulator.ptx import declarations
from cutesmith.emulator.ptx.body import BodyParser
from cutesmith.emulator.ptx.locations import Locations
from cutesmith.emulator.ptx.syntax import Function, Module, Variable
from cutesmith.emulator.ptx.tokens import Tokens

_FUNCTIONS = (".entry", ".func")
_NUMBERED = ("reqntid", "maxntid", "minnctapersm", "maxnctapersm", "maxnreg", "reqnctapercluster", "maxclusterrank",
             "explicitcluster", "blocksareclusters", "noreturn", "abi_preserve", "abi_preserve_control")  # fmt: skip
"""Performance and cluster directives: integers, or nothing, after the name."""


def parse(text: str) -> Module:
    """Read a PTX module; PtxSyntaxError names the line and what was expected there."""
    return _ModuleParser(text).parse()


class _ModuleParser:
    def __init__(self, text: str) -> None:
        self.tokens = Tokens(text)
        self.locations = Locations(self.tokens.text)
        self.version = self.target = ""
        self.variables: dict[str, Variable] = {}
        self.functions: dict[str, Function] = {}

    def parse(self) -> Module:
        while self.tokens.peek():
            self._statement()
        if not self.version or not self.target:
            self.tokens.fail("a module with `.version` and `.target`")
        return Module(self.version, self.target, tuple(self.variables.values()), self.functions)

    def _statement(self) -> None:
        tokens, token = self.tokens, self.tokens.peek()
        if token == ".version":
            tokens.take()
            self.version = tokens.take()
        elif token == ".target":
            self.tokens.take()
            self.target = self.tokens.name("a target such as `sm_90a`")
            if not any(character.isdigit() for character in self.target):
                self.tokens.position -= 1
                self.tokens.fail("a target such as `sm_90a`")
            while self.tokens.accept(","):
                self.tokens.name("a target option")
        elif token == ".address_size":
            self.tokens.take()
            if self.tokens.integer("64") != 64:
                self.tokens.position -= 1
                self.tokens.fail("64: no other address size is supported")
        elif token in (".file", ".loc"):
            self._file_or_loc()
        elif token == ".section":
            self.tokens.take()
            self.tokens.take()
            self.tokens.expect("{", "after the name of a section")
            while self.tokens.peek() not in ("}", ""):
                self.tokens.take()
            self.tokens.expect("}", "after a section")
        elif token in (".pragma", ".alias"):
            self._skip_to_semicolon()
        else:
            self._declaration()

    def _file_or_loc(self) -> None:
        if self.tokens.take() == ".loc":
            self.locations.read(self.tokens)
            return
        self.tokens.integer("a file number")
        if not self.tokens.peek().startswith('"'):
            self.tokens.fail("a file name in quotes")
        self.tokens.take()
        while self.tokens.accept(","):  # time stamp, size
            self.tokens.integer("a number")

    def _skip_to_semicolon(self) -> None:
        while self.tokens.peek() not in (";", ""):
            self.tokens.take()
        self.tokens.expect(";", "at the end of a directive")

    def _declaration(self) -> None:
        tokens, external = self.tokens, False
        while tokens.peek() in declarations.LINKAGE:
            external |= tokens.take() == ".extern"
        word = tokens.peek()
        if word in _FUNCTIONS:
            tokens.take()
            self._function(word[1:])
        elif word[1:] in declarations.SPACES:
            tokens.take()
            found = declarations.variables(tokens, word[1:], external)
            self.variables.update((variable.name, variable) for variable in found)
        else:
            tokens.fail("a directive, a variable or a function")

    def _function(self, kind: str) -> None:
        tokens = self.tokens
        returns = declarations.parameters(tokens) if kind == "func" and tokens.peek() == "(" else ()
        name = tokens.name("the name of a function")
        parameters = declarations.parameters(tokens) if tokens.peek() == "(" else ()
        directives = self._directives()
        self.functions.setdefault(name, Function(name, kind, parameters, {}, (), (), returns, directives))
        if tokens.accept(";"):
            return
        if self.functions[name].body:
            tokens.refuse(f"function `{name}` is defined twice")
        self.locations.start_function()
        symbols = self.variables.keys() | self.functions.keys()
        body = BodyParser(self.tokens, self.locations, symbols).parse(parameters + returns)
        self.functions[name] = Function(
            name, kind, parameters, body.registers, tuple(body.variables), tuple(body.statements), returns, directives,
            body.branch_targets,
        )  # fmt: skip

    def _directives(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        while self.tokens.peek().startswith("."):
            word = self.tokens.peek()[1:]
            if word == "pragma":
                self._skip_to_semicolon()
            elif word in _NUMBERED:
                self.tokens.take()
                values: list[int] = []
                while self.tokens.peek()[:1].isdigit():
                    values.append(self.tokens.integer("a number"))
                    if not self.tokens.accept(","):
                        break
                found[word] = tuple(values)
            else:
                self.tokens.fail("a directive of a function such as `.reqntid`, or its body")
        return found
