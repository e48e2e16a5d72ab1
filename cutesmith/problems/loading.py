"""Running a kernel or problem file as a module of its own: the only place where a user's file is executed.

The module is run from its real file, so that `inspect.getsource`, `linecache` and the AST rewriting of the DSL find the
source; names that the caller strips are removed from the AST before it is compiled, and line numbers stay. Call this in
a worker process: the file may do anything.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import linecache
import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from cutesmith.errors import ContractError
from cutesmith.problems import kernelbench
from cutesmith.problems.arguments import of_values
from cutesmith.problems.contract import (
    FileContract,
    check_tolerance,
    defined_names,
    inspect,
    module_scope,
    parse,
    problem_source,
)

FILE_MODULE = "cutesmith_file_"  # how names of users' modules begin in sys.modules


class LoadError(ContractError):
    """The file raised while it was being run; `__cause__` is its own exception and `line` the last line of the file."""

    def __init__(self, message: str, *, line: int, log_tail: str) -> None:
        super().__init__(message, hint=log_tail)
        self.line = line
        self.log_tail = log_tail


@dataclass(frozen=True, kw_only=True)
class LoadedFile:
    """A file that has been run: its module, its functions, and the text that stands for it.

    `source` is the file's text; for a KernelBench file, with the adapter that gives it `reference_fn` and `get_inputs`
    appended, so that it can be embedded in a generated kernel as it is.
    """

    contract: FileContract
    module: ModuleType
    source: str
    tolerance: dict[str, float] = field(default_factory=dict)

    @property
    def kernel_fn(self) -> Callable[..., Any]:
        """`kernel_fn`, called with values (`problems.arguments`); ContractError when the file has none."""
        return of_values(self._function("kernel_fn"))

    @property
    def reference_fn(self) -> Callable[..., Any]:
        """`reference_fn`, called with values; ContractError when the file has none or it was stripped."""
        return of_values(self._function("reference_fn"))

    @property
    def get_inputs(self) -> Callable[[], Any]:
        """`get_inputs`; ContractError when the file has none or it was stripped."""
        return self._function("get_inputs")

    @property
    def get_input_sets(self) -> Callable[[], Any] | None:
        """`get_input_sets`, or None: it is optional."""
        return self._function("get_input_sets") if hasattr(self.module, "get_input_sets") else None

    def _function(self, name: str) -> Callable[..., Any]:
        function = getattr(self.module, name, None)
        if function is None:
            raise ContractError(f"{self.contract.path} has no {name}")
        if not callable(function):
            raise ContractError(f"{self.contract.path}: {name} is not a function but {function!r:.80}")
        return function  # type: ignore[no-any-return]


def load_file(
    path: str | Path,
    strip: Sequence[str] = (),
    *,
    with_problem: bool = False,
    rewrite: Callable[[ast.Module], ast.Module] | None = None,
) -> LoadedFile:
    """Run the file as a module and give its functions.

    Top-level definitions named in `strip` (functions, classes, assignments, imports) are removed before it is compiled;
    then `rewrite` may change the tree, but no line number.
    Raises ContractError for a broken contract and LoadError when the file raises; SystemExit passes through.
    """
    contract = inspect(path, with_problem=with_problem)
    wraps_model = contract.wraps_model and not {"reference_fn", "get_inputs"} & set(strip)
    source = contract.source
    if wraps_model:
        source = kernelbench.rename_inputs(contract)
    module = _run(contract, source, frozenset(strip), rewrite)
    if wraps_model:
        source += kernelbench.adapt(contract, module)
    tolerance = check_tolerance(getattr(module, "TOLERANCE", None), contract.path)
    return LoadedFile(contract=contract, module=module, source=source, tolerance=tolerance)


def run_file(path: str | Path) -> ModuleType:
    """Run any Python file as a module, whatever it defines. Raises as `load_file` does, but asks for no contract."""
    source = problem_source(path)
    return _run(FileContract(path=Path(path), kind="module", source=source, names={}), source, frozenset())


def _run(
    contract: FileContract,
    source: str,
    strip: Collection[str],
    rewrite: Callable[[ast.Module], ast.Module] | None = None,
) -> ModuleType:
    path = contract.path.resolve()
    tree = strip_names(parse(source, path), strip)
    tree = tree if rewrite is None else rewrite(tree)
    lines = source.splitlines(keepends=True)
    linecache.cache[str(path)] = (len(source), None, lines, str(path))  # a confined process may not read the file
    name = re.sub(r"\W", "_", f"{path.stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}")
    spec = ModuleSpec(FILE_MODULE + name, _TreeLoader(tree, path, source), origin=str(path))
    spec.has_location = True
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    except Exception as error:
        sys.modules.pop(spec.name, None)
        raise _load_error(contract, path, error) from error
    for name in strip:  # a name that was bound by other means, such as globals()[...]
        module.__dict__.pop(name, None)
    return module


class _TreeLoader(InspectLoader):
    """Runs an AST under the file's own name: unlike SourceFileLoader it neither reads nor writes `__pycache__`."""

    def __init__(self, tree: ast.Module, path: Path, source: str) -> None:
        self._tree, self._path, self._source = tree, path, source

    def get_source(self, fullname: str) -> str:
        return self._source

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = compile(self._tree, str(self._path), "exec", dont_inherit=True)
        return code


def _load_error(contract: FileContract, path: Path, error: Exception) -> LoadError:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = (frames[-1].lineno or 0) if frames else 0
    tail = "".join(traceback.format_exception(error)[-8:]).strip()[-4000:]
    where = f"{contract.path}:{line}" if line else str(contract.path)
    return LoadError(
        f"{where}: {type(error).__name__} while running the file: {error}"[:2000], line=line, log_tail=tail
    )


def strip_names(tree: ast.Module, names: Collection[str]) -> ast.Module:
    """Remove every module-scope definition of the names; functions and classes of other names stay untouched."""
    if names:
        tree.body = [kept for statement in tree.body for kept in _strip_statement(statement, names)]
    return ast.fix_missing_locations(tree)


def _strip_statement(statement: ast.stmt, names: Collection[str]) -> Iterator[ast.stmt]:
    _strip_blocks(statement, names)
    if not any(name in names for name in defined_names(statement)):
        if not _only_uses(statement, names):
            yield statement
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        statement.names = [a for a in statement.names if (a.asname or a.name.partition(".")[0]) not in names]
        if statement.names:
            yield statement
    elif isinstance(statement, ast.Assign):
        kept = [target for target in statement.targets if not any(n.id in names for n in _names_in(target))]
        if kept:  # `f = reference_fn = …` keeps f
            statement.targets = kept
            yield statement


def _only_uses(statement: ast.stmt, names: Collection[str]) -> bool:
    """Whether a statement binds no name and reads a stripped one: `assert`, a call, `kernel_fn.attribute = …`."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return False
    defines = any(True for inner in module_scope([statement]) for _ in defined_names(inner))
    return not defines and any(n.id in names and isinstance(n.ctx, ast.Load) for n in _names_in(statement))


def _names_in(node: ast.AST) -> list[ast.Name]:
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.Name)]


def _strip_blocks(statement: ast.stmt, names: Collection[str]) -> None:
    """Strip inside if, try, with and loops at module scope, leaving `pass` where a block would be empty."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    for owner in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(owner, name, None)
            if isinstance(block, list) and block:
                kept = [item for inner in block for item in _strip_statement(inner, names)]
                setattr(owner, name, kept or [ast.copy_location(ast.Pass(), block[0])])
