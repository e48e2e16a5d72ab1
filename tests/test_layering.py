"""Imports point one way, as docs/design.md says; what the shared verbs import at module level is always there."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from cutesmith.problems.contract import module_scope

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "cutesmith"


def floors() -> dict[str, int]:
    """Room -> floor, as the table of docs/design.md has them."""
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", (ROOT / "docs" / "design.md").read_text("utf-8"), re.MULTILINE)
    return {name: int(floor) for floor, rooms in rows for name in re.findall(r"`(\w+)(?:/|\.py)`", rooms)}


RANKS = floors()
"""A module may import its own rank and what is below; the package itself imports nothing of ours."""

SUBROOMS = {
    "agent": "models | texts | display | tools | problems",
    "compiling": "engines",
    "emulator": "ptx | instructions | program | native state | emitters sanitizer | machine | engines | tensor_cores | "
    "operations profiling | positions",
    "evals": "selftest | suites | engines scores | running",
    "examples": "index | fetch search",
    "judge": "draws transfer | candidate_side reference_side",
    "patterns": "graph | tracing writing | contraction elementwise rows | attention "
    "columns interleaving recurrences scans scatters selection transforms windows | chains | cutting | generation",
    "patterns.contraction": "blackwell hopper",
    "patterns.tracing": "lowering",
    "profiling": "scripts",
    "report": "runs session",
}
"""The packages of a room from its foot, `|` between floors: one may import its own floor and what is below."""

JUDGES = "check lint compile verify emulate profile benchmark".split()
BARE_VERBS = [*JUDGES, *"checkpoint doctor find search note".split()]
ALWAYS_THERE = {"cutesmith", "torch", "cutlass", "tvm_ffi", *sys.stdlib_module_names}


def room(module: str) -> str:
    """`cutesmith.lint.rules` is in the room `lint`; the package itself is the empty room."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(statement: ast.AST, module: str) -> Iterator[str]:
    """The dotted modules that an import statement names; a module named after `from package import` is one of them."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        assert statement.level == 0, f"{module}:{statement.lineno}: relative import"
        for alias in statement.names:
            whole = f"{statement.module}.{alias.name}"
            yield whole if module_file(whole) else str(statement.module)


@functools.cache  # a name that many modules import is looked up once
def module_file(module: str) -> Path | None:
    base = ROOT.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def is_type_checking(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test).endswith("TYPE_CHECKING")


@functools.cache  # most verbs meet most modules
def top_level_imports(module: str) -> tuple[str, ...]:
    """What importing the module imports: not what functions or `if TYPE_CHECKING` import."""
    body = parsed(module).body
    typing_only = {id(inner) for s in body if is_type_checking(s) for inner in module_scope([s])}
    statements = (statement for statement in module_scope(body) if id(statement) not in typing_only)
    return tuple(name for statement in statements for name in imported(statement, module))


MODULES = sorted(module_name(path) for path in PACKAGE.rglob("*.py"))


@functools.cache
def all_imports(module: str) -> frozenset[str]:
    """Every module of ours that a module imports, also inside functions and for type checking."""
    names = (name for statement in statements(parsed(module)) for name in imported(statement, module))
    return frozenset(name for name in names if module_file(name) and name.startswith("cutesmith.") and name != module)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements within a node; their expressions, which are most of a tree, hold none."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield child
            yield from statements(child)


@functools.cache
def parsed(module: str) -> ast.Module:
    return ast.parse(source(module))


def source(module: str) -> str:
    path = module_file(module)
    assert path is not None, module
    return path.read_text(encoding="utf-8")


def test_every_room_has_a_rank():
    """And every floor of the map a room."""
    assert {room(module) for module in MODULES} - {""} == RANKS.keys()


def wrong_imports(module: str, names: Iterable[str]) -> list[str]:
    """The imports of ours that point up."""
    own = RANKS.get(room(module), -1)
    return [name for name in names if RANKS.get(room(name), -1) > own]


def test_imports_point_one_way():
    """One test for all: that many of pytest's own took longer than their work."""
    wrong = {module: wrong_imports(module, all_imports(module)) for module in MODULES}
    assert len(wrong) > 300 and {module: names for module, names in wrong.items() if names} == {}


@pytest.mark.parametrize(
    ("module", "statement", "wrong"),
    [
        ("cutesmith.judge.x", "from cutesmith.patterns.tracing import trace", ["cutesmith.patterns.tracing.trace"]),
        ("cutesmith.verdicts", "import cutesmith.problems", ["cutesmith.problems"]),
        ("cutesmith", "def f():\n    from cutesmith import verdicts", ["cutesmith.verdicts"]),
        ("cutesmith.patterns.x", "from cutesmith.sandbox import worker", []),
    ],
)
def test_an_import_that_points_up_is_seen(module, statement, wrong):
    names = [name for inner in statements(ast.parse(statement)) for name in imported(inner, module)]
    assert wrong_imports(module, names) == wrong


def circles(arrows: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in arrows.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in arrows:
        if node not in index:
            visit(node)
    return found


CIRCLES_LEFT: set[str] = set()  # rooms that still hold a circle
STRINGS_LEFT: set[str] = set()  # modules that still name a function in a string


def test_no_module_imports_itself_by_way_of_others():
    """Imports inside functions and under TYPE_CHECKING count too."""
    found = circles({module: all_imports(module) for module in MODULES})
    rooms = {".".join(module.split(".")[:2]) for circle in found for module in circle}
    assert rooms <= {".".join(folder.split(".")[:2]) for folder in CIRCLES_LEFT}


def folder_arrows(folder: str) -> dict[str, set[str]]:
    """What a package's parts (its modules and packages) import of one another."""
    depth = folder.count(".") + 2

    def part(module: str) -> str:
        return ".".join(module.split(".")[:depth])

    inside = [module for module in MODULES if module.startswith(f"{folder}.")]
    arrows: dict[str, set[str]] = {part(module): set() for module in inside}
    for module in inside:
        arrows[part(module)] |= {part(n) for n in all_imports(module) if n.startswith(f"{folder}.")} - {part(module)}
    return arrows


@pytest.mark.parametrize("folder", sorted({module.rpartition(".")[0] for module in MODULES if module.count(".") > 1}))
def test_the_parts_of_a_room_have_an_order(folder):
    """So each room can be read from its foot: no two of its packages or modules need each other."""
    assert (circles(folder_arrows(folder)) == []) != (folder in CIRCLES_LEFT)


def test_every_package_of_a_room_has_a_floor():
    """A new package gets its place in SUBROOMS, and a reader the order in which to read a room."""
    packages = (path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("__init__.py"))
    inner = {(".".join(path.parent.parts), path.name) for path in packages if len(path.parts) > 1}
    assert inner == {(room, name) for room, floors in SUBROOMS.items() for name in floors.replace("|", " ").split()}


def test_every_package_says_what_it_holds():
    packages = {module_name(path) for path in PACKAGE.rglob("__init__.py")}
    silent = {package for package in packages if not ast.get_docstring(parsed(package))}
    assert silent == set()


def upward(floors: str, folder: str, arrows: Mapping[str, Iterable[str]]) -> list[str]:
    """The arrows between a room's packages that point up."""
    rank = {f"cutesmith.{folder}.{name}": n for n, floor in enumerate(floors.split("|")) for name in floor.split()}
    pairs = [(part, other) for part, others in arrows.items() for other in others]
    return [f"{a} -> {b}" for a, b in pairs if a in rank and b in rank and rank[a] < rank[b]]


@pytest.mark.parametrize("folder", SUBROOMS)
def test_the_packages_of_a_room_import_one_way(folder):
    assert upward(SUBROOMS[folder], folder, folder_arrows(f"cutesmith.{folder}")) == []


def test_an_arrow_within_a_room_that_points_up_is_seen():
    arrows = {"cutesmith.judge.draws": ["cutesmith.judge.candidate_side"], "cutesmith.judge.rounds": []}
    assert upward(SUBROOMS["judge"], "judge", arrows) == ["cutesmith.judge.draws -> cutesmith.judge.candidate_side"]


def test_a_circle_is_seen():
    assert circles({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a", "d"]}) == [["a", "b", "c"]]


def named_in_strings(module: str) -> Iterator[str]:
    """Modules of ours that a string of the code names: "cutesmith.a.b" or "cutesmith.a.b:function"."""
    quoted = re.search(r"""["']cutesmith\.""", source(module))
    for node in ast.walk(parsed(module)) if quoted else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name, colon, _ = node.value.partition(":")
            if name.startswith("cutesmith.") and module_file(name):
                yield node.value if colon else name


def test_nothing_names_what_it_could_not_import():
    """A string may say which program of its own room or below is run; functions are passed as functions."""
    wrong = {
        module: [n for n in named_in_strings(module) if ":" in n or wrong_imports(module, [n])] for module in MODULES
    }
    assert {module for module, names in wrong.items() if names} == STRINGS_LEFT


@pytest.mark.parametrize("verb", BARE_VERBS)
def test_a_shared_verb_needs_only_the_standard_library_torch_and_the_dsl(verb):
    waiting, seen = [f"cutesmith.commands.{verb}"], set()
    while waiting:
        module = waiting.pop()
        seen.add(module)
        for name in top_level_imports(module):
            assert name.split(".")[0] in ALWAYS_THERE, f"{module} imports {name} at module level"
            if module_file(name) and name not in seen:
                waiting.append(name)
    assert len(seen) > 2


def test_the_command_line_imports_neither_torch_nor_the_dsl_by_itself():
    """Nor does the judge of a kernel, whose workers do: it would take each verb more than a second."""
    waiting, seen = ["cutesmith.cli", *(f"cutesmith.commands.{verb}" for verb in JUDGES)], set()
    while waiting:
        module = waiting.pop()
        seen.add(module)
        for name in top_level_imports(module):
            assert name.split(".")[0] in {"cutesmith", *sys.stdlib_module_names}, f"{module} imports {name}"
            if module_file(name) and name not in seen:
                waiting.append(name)
