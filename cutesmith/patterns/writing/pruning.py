"""What a kernel section cannot reach goes: branches on constants, arguments that never vary, names that stand unread.

The templates serve every configuration; the rendered section serves one. `prune` works on the source's segments by the
places that the AST gives, so that comments and formatting stay as the template wrote them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cutesmith.patterns.writing.constants import Constants, Value, assigned, is_pure, known, simplified, stored_names
from cutesmith.patterns.writing.inlining import blocks
from cutesmith.patterns.writing.naming import KERNEL_NAME
from cutesmith.problems.contract import defined_names, module_scope, parse
from cutesmith.syntax import Walks, walk


def prune(section: str) -> str:
    """The section without what its own constants rule out and what `kernel_fn` does not reach; it computes the same."""
    while True:
        source = _Source(section)
        edits = source.dead_names() or source.dead_code()
        if not edits:
            return spaced(section)
        section = source.edited(edits)


def spaced(section: str) -> str:
    """Two blank lines around functions and classes, and at most two anywhere."""
    lines, tree = section.split("\n"), parse(section, "kernel section")
    wide = set[int]()
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            first = min([statement.lineno, *(each.lineno for each in statement.decorator_list)])
            wide |= {_comment_start(lines, first - 1), statement.end_lineno or statement.lineno}
    parts = list[str]()
    for number, line in enumerate(lines):
        if number in wide and parts:
            while parts and not parts[-1]:
                parts.pop()
            parts += ["", ""]
            if not line:
                continue
        if line or parts[-2:] != ["", ""]:
            parts.append(line)
    return "\n".join(parts).rstrip("\n") + "\n"


def _comment_start(lines: list[str], first: int) -> int:
    """The line where the comments begin that stand right above line `first`."""
    while first and lines[first - 1].startswith("#"):
        first -= 1
    return first


@dataclass(frozen=True)
class Edit:
    """Bytes `start` to `end` become `text`."""

    start: int
    end: int
    text: bytes = b""

    def meets(self, other: Edit) -> bool:
        """Whether both are of a common byte."""
        return self.start < other.end and other.start < self.end


@dataclass
class _Source:
    """A section with the places of its nodes."""

    text: str
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        self.tree = parse(self.text, "kernel section")
        self.walks = Walks()
        self.nodes = self.walks.below(self.tree)
        self.bytes = self.text.encode()
        self.starts = [0]
        for line in self.bytes.split(b"\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)

    def edited(self, groups: list[list[Edit]]) -> str:
        """The text after all groups of edits that do not overlap with an earlier group; the others come next time."""
        taken, data = list[Edit](), self.bytes
        for group in groups:
            if not any(a.meets(b) for a in group for b in taken):
                taken += group
        for edit in sorted(taken, key=lambda each: each.start, reverse=True):
            data = data[: edit.start] + edit.text + data[edit.end :]
        return data.decode()

    # Names of the module that nothing reads.

    def dead_names(self) -> list[list[Edit]]:
        """Removes what `kernel_fn` does not reach, and properties that nothing reads."""
        reached = self._reached()
        groups = list[list[Edit]]()
        for statement in self.tree.body:
            names = {name for each in module_scope([statement]) for name in defined_names(each)}
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                groups += self._without_aliases(statement, names - reached)
            elif names and not names & reached:
                groups.append([self._removal(statement)])
            elif isinstance(statement, ast.Assign):
                groups += self._without_targets(statement, reached)
        read = {node.attr for node in self.nodes if isinstance(node, ast.Attribute)}
        for owner in (each for each in self.tree.body if isinstance(each, ast.ClassDef)):
            for each in owner.body:
                if isinstance(each, ast.FunctionDef) and _is_property(each) and each.name not in read:
                    groups.append([self._removal(each)])
            groups += self._dead_fields(owner, read)
        return groups

    def _dead_fields(self, owner: ast.ClassDef, read: set[str]) -> Iterator[list[Edit]]:
        """Fields of a NamedTuple that nothing reads by name, with what every call gives for them."""
        fields = [each for each in owner.body if isinstance(each, ast.AnnAssign)]
        calls = [each for each in self.nodes if isinstance(each, ast.Call) and _is_name(each.func, owner.name)]
        whole = all(len(each.args) == len(fields) and not each.keywords for each in calls)
        if not whole or [base for base in owner.bases if not _is_name(base, "NamedTuple")]:
            return
        for at, each in enumerate(fields):
            if isinstance(each.target, ast.Name) and each.target.id not in read:
                yield [self._removal(each), *(self._out_of_list(*self._span(call.args[at])) for call in calls)]

    def _without_targets(self, statement: ast.Assign, read: set[str]) -> Iterator[list[Edit]]:
        """What is read of `a, b = x, y`, where the rest may go."""
        pairs = list(assigned(statement))
        kept = [(name, value) for name, value in pairs if name in read or not is_pure(value)]
        if len(pairs) > len(kept) > 0:
            names, values = ", ".join(name for name, _ in kept), ", ".join(ast.unparse(value) for _, value in kept)
            yield [Edit(*self._span(statement), f"{names} = {values}".encode())]

    def _reached(self) -> set[str]:
        """The module-level names that `kernel_fn` needs, and statements that bind no name."""
        needs = dict[str, set[str]]()
        pending = {KERNEL_NAME}
        for statement in self.tree.body:
            names = {name for each in module_scope([statement]) for name in defined_names(each)}
            read = {node.id for node in self.walks.below(statement) if isinstance(node, ast.Name)}
            for name in names:
                needs.setdefault(name, set()).update(read - names)
            if not names:
                pending |= read
        reached = set[str]()
        while pending:
            name = pending.pop()
            reached.add(name)
            pending |= needs.get(name, set()) - reached
        return reached

    def _without_aliases(self, statement: ast.Import | ast.ImportFrom, dead: set[str]) -> list[list[Edit]]:
        if not dead or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__"):
            return []
        kept = [each for each in statement.names if (each.asname or each.name.partition(".")[0]) not in dead]
        if not kept:
            return [[self._removal(statement)]]
        statement.names = kept
        return [[Edit(*self._span(statement), ast.unparse(statement).encode())]]

    # Code that constants rule out, and values that nothing reads.

    def dead_code(self) -> list[list[Edit]]:
        """Removes branches, arguments and local values, outer ones first."""
        constants = Constants(self.tree, self.walks)
        groups = list[list[Edit]]()
        for owner, name, value in constants.fixed_parameters():
            groups += self._in_place_of(name, value, owner)
        groups += [self._without_parameter(*each) for each in constants.unread_parameters()]
        for function in self.nodes:
            if isinstance(function, ast.FunctionDef):
                groups += self._dead_branches(function, constants.seen_in(function))
                groups += self._single_rounds(function, constants.seen_in(function))
                groups += self._dead_values(function)
        return groups

    def _dead_branches(self, function: ast.FunctionDef, constants: Mapping[str, Value]) -> Iterator[list[Edit]]:
        for node in _own_nodes(function):
            if isinstance(node, ast.If):
                value = known(node.test, constants)
                if value is not None:
                    yield [self._taken(node, node.body if value.it else node.orelse)]
                elif all(isinstance(each, ast.Pass) for each in node.body) and not node.orelse and is_pure(node.test):
                    yield [self._removal(node)]
                elif (shorter := simplified(node.test, constants)) is not None:
                    yield [Edit(*self._span(node.test), ast.unparse(shorter).encode())]
            elif isinstance(node, ast.IfExp) and (value := known(node.test, constants)) is not None:
                yield [self._chosen(node, node.body if value.it else node.orelse)]

    def _single_rounds(self, function: ast.FunctionDef, constants: Mapping[str, Value]) -> Iterator[list[Edit]]:
        """Loops of no round or one: what they do is written with the number in place, then without the loop."""
        for block in blocks(self.walks.below(function)):
            for loop in (each for each in block if isinstance(each, ast.For) and not each.orelse):
                rounds = known(loop.iter, constants)
                if rounds is None or not isinstance(rounds.it, (range, tuple)) or len(rounds.it) > 1:
                    continue
                if not rounds.it:
                    yield [self._removal(loop, stands_alone=len(block) == 1)]
                elif isinstance(loop.target, ast.Name) and self._is_straight(loop, function):
                    start, end = self._span(loop)
                    whole = Edit(self._line_start(start), end, self._dedented(loop, loop.body))
                    yield from self._in_place_of(loop.target.id, Value(rounds.it[0]), loop) or [[whole]]

    def _is_straight(self, loop: ast.For, function: ast.FunctionDef) -> bool:
        """Whether the loop is not left, and its variable neither bound again inside nor read behind it."""
        assert isinstance(loop.target, ast.Name)
        name, below = loop.target.id, self.walks.below
        inside = [node for part in loop.body for node in below(part)]
        if name in stored_names(inside) or any(isinstance(each, (ast.Break, ast.Continue)) for each in inside):
            return False
        loops = [each for each in below(function) if isinstance(each, ast.For) and name in stored_names([each.target])]
        its_own = {node for each in loops for node in below(each)}
        return all(each in its_own for each in below(function) if isinstance(each, ast.Name) and each.id == name)

    def _chosen(self, node: ast.expr, part: ast.expr) -> Edit:
        """An expression as a part of it, in the parentheses that stand around it or without."""
        (start, end), (first, last) = self._span(node), self._span(part)
        if isinstance(part, (ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript)):
            opens = self._is_enclosed(start, end) and not re.match(rb"[\w)\]]", self.bytes[start - 2 : start - 1])
            return Edit(start - opens, end + opens, self.bytes[first:last])
        keeps = isinstance(node, ast.BinOp) and self._is_enclosed(first, last)
        return Edit(start, end, self.bytes[first - keeps : last + keeps])

    def _is_enclosed(self, start: int, end: int) -> bool:
        return self.bytes[start - 1 : start] == b"(" and self.bytes[end : end + 1] == b")"

    def _taken(self, node: ast.If, branch: list[ast.stmt]) -> Edit:
        """An `if` as the statements of one branch; an `elif` that is taken becomes the `else`."""
        start, end = self._span(node)
        is_elif = self.bytes[start:].startswith(b"elif")
        if not branch:
            return Edit(self._line_start(start), end + 1) if is_elif else self._removal(node)
        if branch is node.orelse and self._is_elif(branch):
            first, _ = self._span(branch[0])
            return Edit(start, first) if is_elif else Edit(start, first + len(b"el"))
        if is_elif and branch is node.orelse:
            last = self._span(node.body[-1])[1]
            found = re.compile(rb"^[ ]*(?=else\s*:)", re.MULTILINE).search(self.bytes, last)
            assert found is not None
            return Edit(self._line_start(start), found.start())
        if is_elif:
            first, last = self._block(node, branch)
            return Edit(start, end, b"else:\n" + self.bytes[first:last])
        return Edit(self._line_start(start), end, self._dedented(node, branch))

    def _dedented(self, node: ast.If | ast.For, branch: list[ast.stmt]) -> bytes:
        """The lines of a branch, where the statement itself stands."""
        first, last = self._block(node, branch)
        step = branch[0].col_offset - node.col_offset
        lines = self.bytes[first:last].split(b"\n")
        return b"\n".join(line[step:] if line[:step].isspace() else line for line in lines)

    def _block(self, node: ast.If | ast.For, branch: list[ast.stmt]) -> tuple[int, int]:
        """The lines of a branch, with the comments before its first statement."""
        head = node.test if isinstance(node, ast.If) else node.iter
        above = self._span(head)[1] if branch is node.body else self._span(node.body[-1])[1]
        if branch is not node.body:
            found = re.compile(rb"^[ ]*else\s*:", re.MULTILINE).search(self.bytes, above)
            assert found is not None
            above = found.end()
        return self.bytes.index(b"\n", above) + 1, self._line_end(self._span(branch[-1])[1])

    def _is_elif(self, branch: list[ast.stmt]) -> bool:
        return isinstance(branch[0], ast.If) and self.bytes[self._span(branch[0])[0] :].startswith(b"elif")

    def _dead_values(self, function: ast.FunctionDef) -> Iterator[list[Edit]]:
        """Local names that are stored and not read, where their values do nothing else."""
        nodes = self.walks.below(function)
        inner = [node for node in nodes if isinstance(node, (ast.Name, ast.Global, ast.Nonlocal))]
        if any(not isinstance(node, ast.Name) for node in inner):
            return
        read = {node.id for node in inner if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)}
        for block in blocks(nodes):
            for each in (each for each in block if isinstance(each, ast.Assign)):
                if _is_unread(each, read):
                    yield [self._removal(each, stands_alone=len(block) == 1)]
                else:
                    yield from self._without_targets(each, read)

    def _without_parameter(self, function: ast.FunctionDef, name: str) -> list[Edit]:
        """The edits that take a parameter out of the signature and of every call."""
        parameters = function.args.posonlyargs + function.args.args
        at = [each.arg for each in parameters].index(name)
        after_default = len(parameters) - len(function.args.defaults)
        default = function.args.defaults[at - after_default] if at >= after_default else None
        start, end = self._span(parameters[at])[0], self._span(default or parameters[at])[1]
        edits = [self._out_of_list(start, end)]
        for call in self.nodes:
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == function.name:
                given = call.args[at] if at < len(call.args) else None
                named = next((each for each in call.keywords if each.arg == name), None)
                if (argument := given or named) is not None:
                    edits.append(self._out_of_list(*self._span(argument)))
        return edits

    def _in_place_of(self, name: str, value: Value, inside: ast.stmt) -> list[list[Edit]]:
        """Edits that write `value` where the name is read inside a statement, small ones first; some meet."""
        parents = {child: node for node in self.walks.below(inside) for child in ast.iter_child_nodes(node)}
        named = [each for each in self.walks.below(inside) if isinstance(each, ast.Name) and each.id == name]
        edits = [self._written(each, parents, value) for each in named if isinstance(each.ctx, ast.Load)]
        return [[edit] for edit in sorted(edits, key=lambda each: each.end - each.start)]

    def _written(self, node: ast.expr, parents: Mapping[ast.AST, ast.AST], value: Value) -> Edit:
        """A constant in place of an expression, without what it does not change: `0 + x`, `x * 1`, `x + y * 0`."""
        parent = parents[node]
        if isinstance(parent, ast.BinOp) and isinstance(value.it, int) and not isinstance(value.it, bool):
            if isinstance(parent.op, ast.Mult) and value.it == 0:
                return self._written(parent, parents, value)
            if value.it == {ast.Add: 0, ast.Mult: 1}.get(type(parent.op)):
                return self._chosen(parent, parent.right if parent.left is node else parent.left)
        return Edit(*self._span(node), repr(value.it).encode())

    def _out_of_list(self, start: int, end: int) -> Edit:
        """Removes one element of a list in parentheses, and one comma."""
        before = re.compile(rb",\s*$").search(self.bytes[:start][-200:])
        if before is not None:
            return Edit(start - len(before[0]), end)
        after = re.compile(rb"\s*,\s*").match(self.bytes, end)
        return Edit(start, after.end() if after else end)

    # Places.

    def _span(self, node: ast.stmt | ast.expr | ast.arg | ast.keyword) -> tuple[int, int]:
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[end_line - 1] + end_column

    def _line_start(self, at: int) -> int:
        return self.bytes.rfind(b"\n", 0, at) + 1

    def _line_end(self, at: int) -> int:
        end = self.bytes.find(b"\n", at)
        return len(self.bytes) if end < 0 else end

    def _removal(self, statement: ast.stmt, *, stands_alone: bool = False) -> Edit:
        """The lines of a statement, with its decorators and the comments right above; `pass` where it is alone."""
        start, end = self._span(statement)
        if stands_alone:
            return Edit(start, end, b"pass")
        for decorator in getattr(statement, "decorator_list", ()):
            start = min(start, self._span(decorator)[0])
        start = self._line_start(start)
        while start and self.bytes[self._line_start(start - 1) : start].lstrip().startswith(b"#"):
            start = self._line_start(start - 1)
        return Edit(start, self._line_end(end) + 1)


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes below a function, without those of functions inside it; outer ones first."""
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop(0)
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            pending += ast.iter_child_nodes(node)


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_property(function: ast.FunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "property" for each in function.decorator_list)


def _is_unread(statement: ast.Assign, read: set[str]) -> bool:
    names = [name for target in statement.targets for name in walk(target) if isinstance(name, ast.Name)]
    plain = all(isinstance(each, (ast.Name, ast.Tuple)) for each in statement.targets)
    return plain and all(name.id not in read for name in names) and is_pure(statement.value)
