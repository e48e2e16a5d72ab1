"""What no call of a drafted kernel reaches: names that nothing reads, conditions and loops that constants decide."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

MARK = "# ---- The problem, as it was given"
Constants = dict[str, object]


def unreached(draft: str) -> list[str]:
    """A line for each such thing in a drafted file, before its problem."""
    tree = ast.parse(draft.split(MARK)[0])
    constants = _constants(tree)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    found = [f"{name}: nothing reads it" for name in _unread_of_module(tree)]
    found += [f"{each.name} of {owner.name}: nothing reads it" for owner, each in _unread_members(tree)]
    for function in functions:
        found += [f"{name} of {function.name}: nothing reads it" for name in _unread_locals(function)]
        hidden = {name: value for name, value in constants.items() if name not in _bound(function)}
        found += [f"{function.name}: {told}" for told in _decided(function, hidden)]
    return found


def _constants(tree: ast.Module) -> Constants:
    """Names of the module that are bound once, to what can be computed now."""
    bound = Counter(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    constants: Constants = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                values = {"it": _value(statement.value, constants)}
                names = [target] if isinstance(target, ast.Name) else getattr(target, "elts", [])
                whole = values["it"] if isinstance(values["it"], tuple) and len(names) > 1 else (values["it"],)
                for name, value in zip(names, whole, strict=False):
                    if value is not None and isinstance(name, ast.Name) and bound[name.id] == 1:
                        constants[name.id] = value
    return constants


def _value(expression: ast.expr, constants: Constants) -> object | None:
    """What an expression of constants is; None where it is not one, or is None."""
    names = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
    functions = {"const_expr": lambda it: it, "min": min, "max": max, "len": len, "range": range}
    functions["range_constexpr"] = range
    plain = not any(isinstance(node, (ast.Attribute, ast.Lambda, ast.comprehension)) for node in ast.walk(expression))
    if not plain or not names <= {*constants, *functions}:
        return None
    try:
        return eval(ast.unparse(expression), {"__builtins__": {}, **functions}, dict(constants))  # noqa: S307
    except (ArithmeticError, TypeError, ValueError, LookupError):
        return None


def _decided(function: ast.FunctionDef, constants: Constants) -> Iterator[str]:
    """Conditions, and loops of at most one round, that constants decide."""
    for node in ast.walk(function):
        if isinstance(node, (ast.If, ast.IfExp, ast.While)) and _value(node.test, constants) is not None:
            yield f"`{ast.unparse(node.test)}` is decided"
        elif isinstance(node, ast.BoolOp):
            named = [each for each in node.values if _reads(each)]
            yield from (f"`{ast.unparse(v)}` is decided" for v in named if _value(v, constants) is not None)
        elif isinstance(node, ast.For):
            rounds = _value(node.iter, constants)
            if isinstance(rounds, (range, tuple)) and len(rounds) < 2:
                yield f"a loop over `{ast.unparse(node.iter)}` has {len(rounds)} rounds"


def _reads(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Store)}


def _bound(function: ast.FunctionDef) -> set[str]:
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)}


def _unread_of_module(tree: ast.Module) -> Iterator[str]:
    read = _reads(tree)
    for statement in tree.body:
        names = []
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            names = [statement.name] if statement.name != "kernel_fn" else []
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            names = [each.asname or each.name.partition(".")[0] for each in statement.names]
        elif isinstance(statement, ast.Assign):
            names = [
                each.id
                for each in ast.walk(statement)
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            ]
        yield from (name for name in names if name not in read)


def _unread_members(tree: ast.Module) -> Iterator[tuple[ast.ClassDef, ast.FunctionDef]]:
    read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    classes = [each for each in tree.body if isinstance(each, ast.ClassDef)]
    for owner in (each for each in classes if [ast.unparse(base) for base in each.bases] == ["NamedTuple"]):
        for each in owner.body:
            if isinstance(each, ast.FunctionDef) and not each.name.startswith("__") and each.name not in read:
                yield owner, each


def _unread_locals(function: ast.FunctionDef) -> Iterator[str]:
    """Parameters, and names of assignments and loops that nothing reads; of several, where none is, or the rest."""
    read = {name for statement in function.body for name in _reads(statement)}
    arguments = function.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    if function.name not in ("kernel_fn", "launches"):  # those of the function
        yield from (each.arg for each in parameters if each.arg not in {*read, "self"} and each.arg[0] != "_")
    for node in ast.walk(function):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.For) else []
        for target in (each for each in targets if isinstance(each, (ast.Name, ast.Tuple))):
            names = [each.id for each in ast.walk(target) if isinstance(each, ast.Name) and _is_stored(each)]
            rest = [each.value.id for each in ast.walk(target) if isinstance(each, ast.Starred)]
            for some in (names, rest):
                if some and some != ["_"] and not any(name in read for name in some):
                    yield ", ".join(some)


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)
