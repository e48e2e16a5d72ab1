"""What is known of values in a kernel section before it runs: constants of the module, parameters that never vary."""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cutesmith.problems.contract import defined_names, module_scope
from cutesmith.syntax import Walks, walk

_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda one, many: one in many, ast.NotIn: lambda one, many: one not in many,
}  # fmt: skip
_UNARY: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.Not: operator.not_, ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "const_expr": lambda it: it,
    "min": min,
    "max": max,
    "len": len,
    "range": range,
    "range_constexpr": range,
}


_PURE = (
    ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Attribute, ast.IfExp, ast.Tuple,
    ast.Subscript, ast.Slice, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip


@dataclass(frozen=True)
class Value:
    """A value that is known, None included."""

    it: Any


_PURE_CALLS = {"Int32", "Int64", "Uint32", "Float32", "min", "max", "size", "index", "get_slice"}
"""Of types, and of what looks at a layout; so are those of instructions, as `CopyBulkTensorTileG2SOp()`."""
Seen = tuple[ast.Call, Mapping[str, Value]]
"""A call, and the constants that are seen where it stands."""


def known(expression: ast.expr, constants: Mapping[str, Value]) -> Value | None:
    """The value of an expression of constants; None where it is not known before the kernel runs."""
    try:
        return _value(expression, constants)
    except (ArithmeticError, TypeError, ValueError):
        return None


def simplified(test: ast.expr, constants: Mapping[str, Value]) -> ast.expr | None:
    """A condition without the operands of `and` and `or` that cannot decide it; None where there are none."""
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "const_expr" and test.args:
        inner = simplified(test.args[0], constants)
        return None if inner is None else ast.Call(test.func, [inner], [])
    if not isinstance(test, ast.BoolOp):
        return None
    neutral = isinstance(test.op, ast.And)
    values = [known(each, constants) for each in test.values]
    kept = [each for each, value in zip(test.values, values, strict=True) if value is None or value.it is not neutral]
    if len(kept) == len(values):
        return None
    return kept[0] if len(kept) == 1 else ast.BoolOp(test.op, kept)


def _value(node: ast.expr, constants: Mapping[str, Value]) -> Value | None:
    match node:
        case ast.Constant():
            return Value(node.value)
        case ast.Name(id=name):
            return constants.get(name)
        case ast.Tuple():
            return _applied(lambda *parts: parts, node.elts, constants)
        case ast.UnaryOp():
            return _applied(_UNARY[type(node.op)], [node.operand], constants)
        case ast.BinOp() if type(node.op) in _BINARY:
            return _applied(_BINARY[type(node.op)], [node.left, node.right], constants)
        case ast.Compare() if len(node.ops) == 1:
            return _applied(_BINARY[type(node.ops[0])], [node.left, *node.comparators], constants)
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS:
            return _applied(_FUNCTIONS[name], node.args, constants)
        case ast.BoolOp():
            return _bool_value(node, constants)
        case ast.IfExp() if (test := _value(node.test, constants)) is not None:
            return _value(node.body if test.it else node.orelse, constants)
    return None


def _applied(function: Callable[..., Any], nodes: list[ast.expr], constants: Mapping[str, Value]) -> Value | None:
    values = [_value(each, constants) for each in nodes]
    parts = [each.it for each in values if each is not None]
    return Value(function(*parts)) if len(parts) == len(values) else None


def _bool_value(node: ast.BoolOp, constants: Mapping[str, Value]) -> Value | None:
    """One operand may decide whatever the others are."""
    deciding = isinstance(node.op, ast.Or)
    values = [_value(each, constants) for each in node.values]
    for value in values:
        if value is not None and bool(value.it) is deciding:
            return Value(deciding)
    return None if None in values else Value(not deciding)


class Constants:
    """The constants of a section: names that are bound once to a literal."""

    def __init__(self, tree: ast.Module, walks: Walks) -> None:
        self.tree, self._walks = tree, walks
        bound = [name for statement in module_scope(tree.body) for name in defined_names(statement)]
        rebound = {name for node in walks.below(tree) if isinstance(node, ast.Global) for name in node.names}
        self.module: dict[str, Value] = {}
        for statement in tree.body:
            for name, expression in assigned(statement):
                value = known(expression, self.module)
                if bound.count(name) == 1 and name not in rebound and value is not None:
                    self.module[name] = value

    def seen_in(self, function: ast.FunctionDef) -> Mapping[str, Value]:
        """The constants that a function's own names do not hide."""
        own = local_names(self._walks.below(function))
        return {name: value for name, value in self.module.items() if name not in own}

    def fixed_parameters(self) -> Iterator[tuple[ast.FunctionDef, str, Value]]:
        """Parameters of functions, at most one of each, for which every call gives the same constant.

        A function that is used otherwise than in calls is left alone, and so are parameters that the DSL would convert.
        """
        for function, calls in self._called():
            yield from self._fixed(function, calls)

    def unread_parameters(self) -> Iterator[tuple[ast.FunctionDef, str]]:
        """Parameters that their functions do not read, at most one of each: every call may leave them out."""
        for function, calls in self._called():
            read = {node.id for node in self._walks.below(function) if isinstance(node, ast.Name)}
            for at, parameter in enumerate(function.args.posonlyargs + function.args.args):
                given = [_given(call, at, parameter.arg) for call, _ in calls]
                if parameter.arg not in read and all(each is None or is_pure(each) for each in given):
                    yield function, parameter.arg
                    break

    def _called(self) -> Iterator[tuple[ast.FunctionDef, list[Seen]]]:
        """The functions that are used in calls alone, each with those, where all arguments are told apart."""
        calls = dict[str, list[Seen]]()
        for statement in self.tree.body:
            seen = self.seen_in(statement) if isinstance(statement, ast.FunctionDef) else self.module
            for node in self._walks.below(statement):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    calls.setdefault(node.func.id, []).append((node, seen))
        read = Counter(node.id for node in self._walks.below(self.tree) if isinstance(node, ast.Name))
        for function in self.tree.body:
            here = calls.get(function.name, []) if isinstance(function, ast.FunctionDef) else []
            if isinstance(function, ast.FunctionDef) and here and read[function.name] == len(here):
                starred = any(isinstance(each, ast.Starred) for call, _ in here for each in call.args)
                starred = starred or any(each.arg is None for call, _ in here for each in call.keywords)
                if not (starred or function.args.vararg or function.args.kwarg or function.args.kwonlyargs):
                    yield function, here

    def _fixed(self, function: ast.FunctionDef, calls: list[Seen]) -> Iterator[tuple[ast.FunctionDef, str, Value]]:
        parameters, defaults = function.args.posonlyargs + function.args.args, function.args.defaults
        stored = stored_names(self._walks.below(function))
        for at, parameter in enumerate(parameters):
            if parameter.arg in stored or not _is_plain(function, parameter):
                continue
            default = defaults[at - len(parameters) + len(defaults)] if at >= len(parameters) - len(defaults) else None
            values = {known(_given(call, at, parameter.arg) or default, seen) for call, seen in calls}  # type: ignore[arg-type]
            if (
                len(values) == 1
                and (value := values.pop()) is not None
                and isinstance(value.it, (int, str, type(None)))
            ):
                yield function, parameter.arg, value
                return


def is_pure(expression: ast.expr) -> bool:
    """Whether evaluating an expression does nothing else, so that it may be left out."""
    return all(isinstance(node, _PURE) or _calls_pure(node) for node in walk(expression))


def _calls_pure(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or node.keywords:
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    return name in _PURE_CALLS or name.endswith("Op")


def local_names(function: Iterable[ast.AST]) -> set[str]:
    """The names that a function of these nodes binds, its parameters included, and those of functions inside it."""
    return {each.arg for each in function if isinstance(each, ast.arg)} | stored_names(function)


def stored_names(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that assignments and loops among the nodes bind."""
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _given(call: ast.Call, at: int, name: str) -> ast.expr | None:
    if at < len(call.args):
        return call.args[at]
    return next((each.value for each in call.keywords if each.arg == name), None)


def _is_plain(function: ast.FunctionDef, parameter: ast.arg) -> bool:
    """Whether the body sees a parameter as it is given: not converted to a value of the kernel."""
    if not function.decorator_list:
        return True
    return parameter.annotation is not None and "Constexpr" in ast.unparse(parameter.annotation)


def assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The names that an assignment binds, each with what it is given."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for name, part in zip(target.elts, value.elts, strict=True):
            if isinstance(name, ast.Name):
                yield name.id, part
