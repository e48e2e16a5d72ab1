"""Kernel sections in one file: what means the same stands there once, another meaning of a name gets another name."""

from __future__ import annotations

import ast
import functools
import itertools
import textwrap
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from cutesmith.patterns.writing.naming import KERNEL_MARK, KERNEL_NAME
from cutesmith.patterns.writing.renaming import KEPT, pieces_of, renamed
from cutesmith.problems.contract import defined_names, module_scope, parse
from cutesmith.syntax import walk

Meaning = int
"""Equal for statements of the same text whose module-level names have equal meanings."""


def join_sections(sections: Mapping[str, str]) -> str:
    """All sections in their order; the `kernel_fn` of each becomes the function that it is filed under."""
    file = _File(set(sections))
    return "\n\n\n".join(file.added(section, function) for function, section in sections.items()) + "\n"


@dataclass
class _File:
    """The names that are taken in the file, the meanings of statements, and the names of each meaning that it has."""

    taken: set[str]
    numbers: dict[Hashable, Meaning] = field(default_factory=dict)
    known: dict[Meaning, dict[str, str]] = field(default_factory=dict)

    def added(self, section: str, function: str) -> str:
        """What a section adds to the file: the first all of it, a later one its head and what is new."""
        is_first = not self.known
        section = section.strip("\n")
        meanings = _Meanings(statements_of(section), function, self.numbers)
        names, kept = dict[str, str](), list[str]()
        for statement in meanings.statements:
            meaning = meanings.of(statement)
            if meaning not in self.known:
                self.known[meaning] = {name: self._free(name, function) for name in statement.bound}
                kept.append(statement.text)
            names |= self.known[meaning]
        self.taken |= set(names.values())
        renames = {old: new for old, new in names.items() if new != old} | {KERNEL_NAME: function}
        if is_first:
            return renamed(section, renames)
        return _laid_out([*_head_of(section), *(renamed(text, renames) for text in kept)])

    def _free(self, name: str, function: str) -> str:
        return name if name not in self.taken else _own_name(name, function)


def _laid_out(parts: Sequence[str]) -> str:
    """Parts of a section: values line by line, functions two blank lines apart."""
    text = parts[0] if parts else ""
    for before, part in itertools.pairwise(parts):
        text += ("\n" if _is_value(before) and _is_value(part) else "\n\n\n") + part
    return text


def _is_value(part: str) -> bool:
    """Whether a part is the head of a section, or binds a name to a value."""
    first = next((line for line in part.split("\n") if not line.startswith("#")), "#")
    return not first.startswith(("def ", "class ", "@"))


def explained(section: str, name: str, why: str) -> str:
    """The section of a kernel that is one of several, with sentences in its head that say why it is laid out so."""
    told = textwrap.fill(why, 118, initial_indent="# ", subsequent_indent="# ", break_long_words=False).split("\n")
    lines = section.split("\n")
    marks = [at for at, line in enumerate(lines, start=1) if line.startswith(KERNEL_MARK)]
    if not marks:
        imports = (each for each in parse(section, name).body if isinstance(each, (ast.Import, ast.ImportFrom)))
        marks, told = [max(each.end_lineno or 0 for each in imports)], ["", f"{KERNEL_MARK}{name}", *told]
    return "\n".join([*lines[: marks[0]], *told, *lines[marks[0] :]])


def _head_of(section: str) -> list[str]:
    """The comments that say what a section's kernel computes, and why so."""
    lines = itertools.dropwhile(lambda line: not line.startswith(KERNEL_MARK), section.split("\n"))
    comments = list(itertools.takewhile(lambda line: line.startswith("#"), lines))
    return ["\n".join([*comments, ""])] if comments else []


@dataclass(frozen=True)
class _Statement:
    """A statement: its lines, what it says whatever its comments are, the names that it binds and reads."""

    text: str
    says: str
    bound: tuple[str, ...]
    read: frozenset[str]
    is_state: bool


def statements_of(section: str) -> tuple[_Statement, ...]:
    """The statements of a section."""
    return tuple(statement for piece in pieces_of(section) for statement in statements_in(piece))


@functools.lru_cache(maxsize=KEPT)
def statements_in(piece: str) -> tuple[_Statement, ...]:
    """The statements of a piece of a section."""
    parts = [part for each in parse(piece, "piece").body for part in _parts(each)]
    return tuple(
        _Statement(_text(part, piece), ast.unparse(part), _bound(part), _read_names(part), _is_state(part))
        for part in parts
    )


class _Meanings:
    """What the statements of a section mean; `numbers` gives each meaning its own."""

    def __init__(self, statements: tuple[_Statement, ...], section: str, numbers: dict[Hashable, Meaning]) -> None:
        self.statements, self.section, self.numbers = statements, section, numbers
        self._binding = {name: statement for statement in statements for name in statement.bound}
        self._found: dict[int, Meaning] = {}

    def of(self, statement: _Statement) -> Meaning:
        """The meaning of a statement.

        State, the kernel's own function and functions that call one another mean something else in each section.
        """
        if id(statement) not in self._found:
            names = statement.bound
            self._found[id(statement)] = self._number(self.section, *names)  # for those that it calls and that call it
            own = self.section if statement.is_state or KERNEL_NAME in names else ""
            read = sorted((statement.read & self._binding.keys()) - set(names))
            meanings = (self.of(self._binding[name]) for name in read)
            self._found[id(statement)] = self._number(statement.says, own, *meanings)
        return self._found[id(statement)]

    def _number(self, *meaning: Hashable) -> Meaning:
        return self.numbers.setdefault(meaning, len(self.numbers))


def _bound(statement: ast.stmt) -> tuple[str, ...]:
    return tuple(name for each in module_scope([statement]) for name in defined_names(each))


def _is_state(statement: ast.stmt) -> bool:
    """Whether it makes an empty dict, to be filled when kernels are launched."""
    return isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict) and not statement.value.keys


def _read_names(statement: ast.stmt) -> frozenset[str]:
    return frozenset(node.id for node in walk(statement) if isinstance(node, ast.Name))


def _parts(statement: ast.stmt) -> list[ast.stmt]:
    """An import of several names as imports of one; any other statement as it is."""
    if isinstance(statement, ast.ImportFrom):
        return [ast.ImportFrom(statement.module, [alias], statement.level) for alias in statement.names]
    return [ast.Import([alias]) for alias in statement.names] if isinstance(statement, ast.Import) else [statement]


def _text(statement: ast.stmt, section: str) -> str:
    """The lines of a statement, decorators included."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return ast.unparse(statement)
    first = statement.lineno
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        first = min([first, *(decorator.lineno for decorator in statement.decorator_list)])
    return "\n".join(section.split("\n")[first - 1 : statement.end_lineno])


def _own_name(name: str, prefix: str) -> str:
    if name.startswith("_"):
        return f"_{prefix}{name}"
    return f"{prefix.upper()}_{name}" if name.isupper() else f"{prefix}_{name}"
