"""The modules and packages beside a plan's file: what its confined process may import, and what a result rests on.

Only Python is opened to the process, and only of the file's own folder: modules (`tiles.py`) and packages (folders with
`__init__.py`) whose names are not those of standard modules. Links are left out, since they could lead elsewhere.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from cutesmith.errors import ContractError
from cutesmith.problems.contract import parse, problem_source

PACKAGE = "__init__.py"


def neighbours_of(path: Path) -> dict[str, Path]:
    """The modules (files) and packages (folders) beside the file, by the names that they are imported by."""
    found: dict[str, Path] = {}
    for entry in _listed(path.parent):
        name = entry.stem if entry.suffix == ".py" else entry.name
        if entry.is_symlink() or entry == path or not name.isidentifier() or name in sys.stdlib_module_names:
            continue
        if (entry.is_dir() and (entry / PACKAGE).is_file()) or (entry.suffix == ".py" and entry.is_file()):
            found.setdefault(name, entry)
    return found


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except PermissionError:  # Python finds nothing in a folder that it may enter but not list
        return []


class NeighbourFinder(MetaPathFinder):
    """Finds these modules and packages before installed ones, as a script finds what lies beside it."""

    def __init__(self, neighbours: Mapping[str, Path]) -> None:
        self.neighbours = dict(neighbours)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec; None for other names, and for what lies in a package, which is found by its path."""
        place = self.neighbours.get(fullname)
        if place is None:
            return None
        if place.suffix == ".py":
            return importlib.util.spec_from_file_location(fullname, place)
        return importlib.util.spec_from_file_location(
            fullname, place / PACKAGE, submodule_search_locations=[str(place)]
        )


def imported_sources(path: Path) -> list[str]:
    """The texts of what the file imports from beside it, and of what that imports, in order of their names.

    Raises ContractError for a neighbour that is not Python; a file that is not Python has no imports here.
    """
    neighbours = neighbours_of(path) if path.is_file() else {}
    texts: dict[Path, str] = {}
    waiting = [problem_source(path)] if neighbours else []
    while waiting:
        named = [neighbours[name] for name in _imports(waiting.pop(), path) if name in neighbours]
        for file in (file for place in named for file in _files(place) if file not in texts):
            texts[file] = problem_source(file)
            waiting.append(texts[file])
    return [texts[file] for file in sorted(texts)]


def _files(place: Path) -> list[Path]:
    return [place] if place.is_file() else [file for file in place.rglob("*.py") if not file.is_symlink()]


def _imports(source: str, path: Path) -> set[str]:
    """The first parts of the names that a text imports, in functions too."""
    try:
        nodes = list(ast.walk(parse(source, path)))
    except ContractError:  # running it says what is wrong, and where
        return set()
    whole = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    parts = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level and node.module}
    return {name.partition(".")[0] for name in whole | parts}
