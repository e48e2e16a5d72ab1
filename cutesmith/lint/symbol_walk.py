"""Walk the installed DSL and write down every public name, signature and deprecation: run in a child process.

    python -m cutesmith.lint.symbol_walk cutesmith/lint/symbols-4.8.1.json.gz      the table that the package carries

The walk imports the DSL (1.5–3 s), so `symbols.py` runs it once per installed version and keeps the JSON. A name
maps to a reference: `m:MODULE`, `c:CLASS`, `f:FUNCTION` (defining module and qualified name) or `x` (anything else).
"""

from __future__ import annotations

import ast
import contextlib
import enum
import functools
import gc
import gzip
import importlib
import inspect
import json
import pkgutil
import re
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cutesmith.syntax import parse_python

ROOT = "cutlass"
IMPORTED_BY_DEFAULT = ("cutlass", "cutlass.cute")
GENERATED = "cutlass._mlir"  # generated dialects: taken as they are when already imported, never imported for the walk

JsonObject = dict[str, Any]


class Walk:
    """Collects modules, classes, functions and deprecations; `table` is the JSON object."""

    def __init__(self) -> None:
        self.table: JsonObject = {"modules": {}, "classes": {}, "functions": {}, "deprecated": {}, "environment": {}}

    def module(self, path: str, module: types.ModuleType, submodules: list[str]) -> None:
        """Write down the names of one module (`path` is how it is imported), and which submodules it could import."""
        names = {}
        for name in sorted(_module_names(module)):
            try:
                value, warning = _read(module, name)
            except AttributeError:
                continue
            names[name] = self.reference(value)
            message = warning or _own_deprecation(value)
            if message:
                self.table["deprecated"][f"{path}.{name}"] = message
        self.table["modules"][path] = {"names": names, "submodules": submodules, "open": False}

    def reference(self, value: Any) -> str:
        """The reference of one object, writing down classes and functions of the DSL on the way."""
        if isinstance(value, types.ModuleType):
            return f"m:{value.__name__}"
        if not _is_ours(value) or (_is_generated(value) and not _is_enum(value)):
            return "x"
        if isinstance(value, type):
            return self._class(value)
        if not isinstance(value, (types.FunctionType, types.MethodType)):
            return "x"
        key = f"{value.__module__}.{value.__qualname__}"
        self.table["functions"].setdefault(key, {"parameters": _parameters(value)})
        return f"f:{key}"

    def _class(self, cls: type) -> str:
        key = f"{cls.__module__}.{cls.__qualname__}"
        if key not in self.table["classes"]:
            entry: JsonObject = {"names": {}, "instance": [], "bases": [], "parameters": None}
            self.table["classes"][key] = entry
            entry["names"] = {name: self._member(cls, name) for name in _class_names(cls)}
            entry["instance"] = sorted(_instance_names(cls) - set(entry["names"]))
            entry["bases"] = [f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__[1:-1]]
            entry["parameters"] = _parameters(cls)
            entry["open"] = _takes_any_name(cls)
            self._class_deprecations(cls, key)
        return f"c:{key}"

    def _member(self, cls: type, name: str) -> str:
        value = inspect.getattr_static(cls, name, None)
        return self.reference(value) if isinstance(value, type) and value is not cls else "x"

    def _class_deprecations(self, cls: type, key: str) -> None:
        for name, value in vars(cls).items():
            value = getattr(value, "fget", None) or getattr(value, "__func__", None) or value
            message = _own_deprecation(value)
            if message and not isinstance(value, type) and name not in {"__init__", "__new__", "__init_subclass__"}:
                self.table["deprecated"][f"{key}.{name}"] = message


def _is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).split(".")[0] == ROOT


def _is_generated(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith(GENERATED)


def _is_enum(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, enum.Enum)


def _own_deprecation(value: Any) -> str:
    """The text of `@deprecated` on this very object: a subclass does not inherit it, nor does the function it wraps.

    `deprecated(text)(function)` marks the wrapped function too, which then looks deprecated at its new home
    (`cutlass.testing.benchmark`); only an object that warns when called counts.
    """
    try:
        message = vars(value).get("__deprecated__")
    except TypeError:
        return ""
    if not isinstance(message, str):
        return ""
    return message if isinstance(value, type) or _warns_when_called(value) else ""


def _warns_when_called(value: Any) -> bool:
    while value is not None:
        file = getattr(getattr(value, "__code__", None), "co_filename", "")
        if Path(file).name in {"typing_extensions.py", "warnings.py", "_py_warnings.py"}:
            return True
        value = getattr(value, "__wrapped__", None)
    return False


def _module_names(module: types.ModuleType) -> set[str]:
    names = {name for name in vars(module) if not (name.startswith("__") and name.endswith("__"))}
    names.update(name for name in getattr(module, "__all__", ()) if isinstance(name, str))
    names.update(
        name for name in ("__version__", "__name__", "__file__", "__path__", "__all__") if hasattr(module, name)
    )
    hook = vars(module).get("__getattr__")
    return names | (set(_hook_names(hook)) if isinstance(hook, types.FunctionType) else set())


def _hook_names(hook: types.FunctionType) -> Iterator[str]:
    """Names that a module-level `__getattr__` (PEP 562) may answer to: its string constants and its tables' keys."""
    for constant in hook.__code__.co_consts:
        for item in constant if isinstance(constant, (tuple, frozenset)) else (constant,):
            if isinstance(item, str) and item.isidentifier():
                yield item
    for name in hook.__code__.co_names:
        value = hook.__globals__.get(name)
        if isinstance(value, (dict, set, frozenset, tuple, list)):
            yield from (key for key in value if isinstance(key, str) and key.isidentifier())


def _read(module: types.ModuleType, name: str) -> tuple[Any, str]:
    """The value of a module's name, and the text of the deprecation warning that reading it raises."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = getattr(module, name)
        except AttributeError:
            raise
        except Exception as error:  # a lazy name whose optional dependency is missing
            raise AttributeError(name) from error
    texts = [str(warning.message) for warning in caught if issubclass(warning.category, DeprecationWarning)]
    return value, texts[0] if texts else ""


def _takes_any_name(cls: type) -> bool:
    """Whether a `__getattr__` answers to names that cannot be listed; that of enums only finds their members."""
    bases = cls.__mro__ if _is_enum(cls) else (*cls.__mro__, *inspect.getmro(type(cls)))
    return any("__getattr__" in vars(base) for base in bases)


def _class_names(cls: type) -> list[str]:
    """Names that the class itself answers to: `dir` of an enum leaves out static methods and aliases."""
    names = {*dir(cls), *(dir(type(cls)) if type(cls) is not type else ()), *getattr(cls, "__members__", ())}
    for base in cls.__mro__:
        annotations = vars(base).get("__annotations__", {})
        names.update(vars(base), annotations if isinstance(annotations, dict) else ())
    return sorted(name for name in names if not name.startswith("__"))


def _instance_names(cls: type) -> set[str]:
    """Attributes that methods of the class or its bases touch: a superset of what `self.x = …` adds to an instance."""
    return set().union(*(_touched_names(base) for base in cls.__mro__[:-1]))


@functools.cache
def _touched_names(cls: type) -> frozenset[str]:
    names: set[str] = set()
    for value in vars(cls).values():
        code = getattr(inspect.unwrap(value) if callable(value) else value, "__code__", None)
        names.update(code.co_names if isinstance(code, types.CodeType) else ())
    return frozenset(names)


def _parameters(value: Any) -> list[str] | None:
    """Names that may be passed by keyword; None when the callable takes any or has no readable signature."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (ValueError, TypeError, NameError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY]


def _import_all(walk: Walk) -> None:
    for name in IMPORTED_BY_DEFAULT:
        importlib.import_module(name)
    at_start = {name for name in sys.modules if name == ROOT or name.startswith(ROOT + ".")}
    walk.table["imported_by_default"] = sorted(at_start)
    for name in sorted(_module_tree(list(sys.modules[ROOT].__path__), ROOT) | at_start):
        if name in sys.modules or not name.startswith(GENERATED):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    importlib.import_module(name)
            except BaseException as error:  # optional dependency (jax, …): the module exists, its names are unknown
                walk.table["modules"][name] = {"names": {}, "submodules": [], "open": True, "error": repr(error)[:200]}
        else:
            walk.table["modules"][name] = {"names": {}, "submodules": [], "open": True}


def _module_tree(folders: list[str], package: str) -> set[str]:
    """Dotted names of every module file beneath the package in these folders, found without importing."""
    found: set[str] = set()
    for info in pkgutil.iter_modules(folders, f"{package}."):
        found.add(info.name)
        if info.ispkg:
            found |= _module_tree([str(Path(folders[0]) / info.name.rpartition(".")[2])], info.name)
    return found


def _walk_modules(walk: Walk) -> None:
    known = sorted(name for name in sys.modules if name == ROOT or name.startswith(ROOT + "."))
    everything = set(known) | set(walk.table["modules"])
    for name in known:
        children = sorted(
            other.rpartition(".")[2] for other in everything if other.rpartition(".")[0] == name and other != name
        )
        module = sys.modules[name]
        if isinstance(module, types.ModuleType):
            walk.module(name, module, children)
            failed = any("error" in walk.table["modules"].get(f"{name}.{child}", {}) for child in children)
            walk.table["modules"][name]["open"] = failed  # `cutlass.jax` has more names once jax is installed


class _WarningScan(ast.NodeVisitor):
    """Finds `warnings.warn(…)` calls about deprecation with the function and the guard around each."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.owners: list[str] = []
        self.functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        self.guards: list[ast.expr] = []
        self.found: list[JsonObject] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.owners.append(node.name)
        self.generic_visit(node)
        self.owners.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer = self.guards
        self.guards = []
        self.owners.append(node.name)
        self.functions.append(node)
        self.generic_visit(node)
        self.functions.pop()
        self.owners.pop()
        self.guards = outer

    def visit_If(self, node: ast.If) -> None:
        self.guards.append(node.test)
        self.generic_visit(node)
        self.guards.pop()

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        text = _literal_text(node.args[0]) if node.args else ""
        # A module's `__getattr__` is asked name by name instead (`_read`).
        public = self.functions and self.functions[-1].name != "__getattr__"
        if name == "warn" and public and "deprecat" in (text + ast.unparse(node)).lower():
            self.found.append({"owner": f"{self.module}.{'.'.join(self.owners)}", "text": text, **self._guard(text)})
        self.generic_visit(node)

    def _guard(self, text: str) -> JsonObject:
        arguments = self.functions[-1].args
        names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)} - {"self", "cls"}
        used = {n.id for guard in self.guards for n in ast.walk(guard) if isinstance(n, ast.Name)} & names
        whole = not self.guards or any("type(self) is" in ast.unparse(guard) for guard in self.guards)
        return {"keywords": sorted(used | set(re.findall(r"with (\w+) is deprecated", text))), "whole": whole}


def _literal_text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return _literal_text(node.left) + _literal_text(node.right) if isinstance(node, ast.BinOp) else ""


def _scan_warnings(walk: Walk) -> None:
    """Deprecations raised at call time: of a whole function or class, or of one keyword of it."""
    walk.table["deprecated_calls"] = []
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if (name == ROOT or name.startswith(ROOT + ".")) and not name.startswith(GENERATED) and file.endswith(".py"):
            text = Path(file).read_text(encoding="utf-8")
            scan = _WarningScan(name)
            scan.visit(parse_python(text if "deprecat" in text and "warn(" in text else ""))
            walk.table["deprecated_calls"] += scan.found


def _environment(walk: Walk) -> None:
    """The `CUTE_DSL_*` variables that the DSL reads, the words of `CUTE_DSL_KEEP`, and the deprecated switches."""
    env = importlib.import_module("cutlass.base_dsl.env_manager")
    table = walk.table["environment"]
    table["deprecated"] = dict(getattr(env, "_DEPRECATED_KEEP_SWITCHES", ()))
    table["keep"] = sorted(getattr(env, "_KEEP_VALID_TOKENS", ()))
    table["variables"] = sorted(_variable_suffixes(Path(str(env.__file__)).parent.parent))


def _variable_suffixes(package: Path) -> set[str]:
    """What follows `CUTE_DSL_` in the names that the package's sources read."""
    found: set[str] = set()
    for file in sorted(package.rglob("*.py")):
        if "_mlir" not in file.parts:
            text = file.read_text(encoding="utf-8")
            found.update(re.findall(r"CUTE_DSL_([A-Z0-9_]+)", text))
            found.update(re.findall(r"\bf\"\{[\w.]+\}_([A-Z][A-Z0-9_]+)\"", text))
            found.update(re.findall(r"env_var\(\s*\"(?!CUTE_DSL_)([A-Z0-9_]+)\"", text))
    return found


def build() -> JsonObject:
    """The symbol table of the installed DSL as one JSON object."""
    walk = Walk()
    _import_all(walk)
    _walk_modules(walk)
    _scan_warnings(walk)
    _environment(walk)
    return walk.table


def main(target: str) -> None:
    """Write the table to `target`, compressed where its name ends so; what the DSL prints meanwhile goes to stderr.

    Nothing of it becomes garbage: with Python's collector the walk took 3.5 s of CPU time, without it 2.8 s.
    """
    gc.disable()
    with contextlib.redirect_stdout(sys.stderr):
        table = build()
    data = json.dumps(table, separators=(",", ":")).encode()
    Path(target).write_bytes(gzip.compress(data, mtime=0) if target.endswith(".gz") else data)


if __name__ == "__main__":
    main(sys.argv[1])
