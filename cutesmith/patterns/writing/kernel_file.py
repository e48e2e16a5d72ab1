"""The standalone `kernel.py`: a header, the kernel section that a plan rendered, then the problem's own source.

The file needs torch and the DSL, nothing of ours. The problem comes last and verbatim, so that a reader can compare it
with the file it came from; what would make the two halves disturb each other is settled here: `__future__` imports move
to the top, and names that both define are renamed in the kernel section, since the problem's definitions run later.
"""

from __future__ import annotations

import ast
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cutesmith import __version__
from cutesmith.errors import ContractError
from cutesmith.patterns.writing.inlining import inlined
from cutesmith.patterns.writing.naming import KERNEL_NAME
from cutesmith.patterns.writing.pruning import prune
from cutesmith.patterns.writing.renaming import renamed
from cutesmith.patterns.writing.wrapping import wrapped
from cutesmith.problems.contract import defined_names, module_scope, parse
from cutesmith.syntax import walk

PROBLEM_MARK = "# ---- The problem, as it was given: what to compute, and on which inputs."
OFF = (False, 0, "none")
"""Values of a configuration that switch something off, which the head need not name."""
HEADER = '''\
"""{problem} as a CuTe DSL kernel.

{facts}
"""
'''


def assemble_kernel(
    kernel_section: str,
    problem_source: str,
    *,
    problem: str,
    pattern: str,
    configuration: Mapping[str, Any],
    arch: str,
    reasons: str = "",
) -> str:
    """The text of a whole kernel file; `reasons` are sentences for its head: why this configuration, what is predicted.

    `problem_source` must define `reference_fn` and `get_inputs` (a KernelBench file: with its adapter, as
    `load_file(path).source` gives it). Raises ContractError when it defines `kernel_fn` itself or is not Python.
    """
    problem_tree = parse(problem_source, problem)
    _refuse_kernel(problem_tree, problem)
    futures, body = split_futures(problem_source, problem_tree)
    section = wrapped(rename_clashes(inlined(prune(kernel_section)), problem_tree))
    if "cute.struct" in section:  # it reads annotations as objects, not as text
        futures = [name for name in futures if name != "annotations"]
    parts = [_header(problem, pattern, configuration, arch, reasons)]
    if futures:
        parts.append(f"from __future__ import {', '.join(futures)}\n")
    parts.append(section.strip("\n") + "\n")
    parts.append(f"\n{PROBLEM_MARK}\n")
    parts.append(body.strip("\n") + "\n")
    text = "\n".join(parts)
    parse(text, "kernel.py")
    return text


def _header(problem: str, pattern: str, configuration: Mapping[str, Any], arch: str, reasons: str) -> str:
    chosen = {key: value for key, value in configuration.items() if value not in OFF}
    settings = ", ".join(f"{key}={json.dumps(value)}" for key, value in chosen.items()) or "none"
    facts = (
        f"Written by cutesmith {__version__} for {arch}: pattern {pattern}, configuration {settings}.",
        *([reasons] if reasons else []),
        "Standalone: needs torch and nvidia-cutlass-dsl only; kernel_fn computes what reference_fn below does.",
    )
    wrapped = "\n".join(textwrap.fill(fact, 118, break_long_words=False) for fact in facts)
    return HEADER.format(problem=_docstring_text(problem), facts=_docstring_text(wrapped))


def _docstring_text(text: str) -> str:
    """Text that cannot end the docstring it stands in."""
    return text.replace("\\", "/").replace('"""', "'''").rstrip('"')


def _refuse_kernel(tree: ast.Module, problem: str) -> None:
    for statement in module_scope(tree.body):
        if KERNEL_NAME in defined_names(statement):
            raise ContractError(
                f"{problem}:{statement.lineno}: the problem already defines {KERNEL_NAME}",
                hint=f"Remove {KERNEL_NAME}, or give a file with reference_fn and get_inputs only.",
            )


def split_futures(source: str, tree: ast.Module) -> tuple[list[str], str]:
    """The names that the source imports from `__future__`, and the source without those lines."""
    imports = [s for s in tree.body if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
    lines = source.splitlines()
    for statement in imports:
        for number in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
            lines[number - 1] = ""
    names = dict.fromkeys(alias.name for statement in imports for alias in statement.names)
    return list(names), "\n".join(lines) if imports else source


def rename_clashes(section: str, problem_tree: ast.Module) -> str:
    """The kernel section with every module-level name that the problem also binds, to something else, renamed."""
    tree = parse(section, "kernel section")
    ours, theirs = _bindings(tree), _bindings(problem_tree)
    clashes = [name for name in ours if name in theirs and (ours[name] != theirs[name] or ours[name] is None)]
    taken = {*ours, *theirs, *_identifiers(tree), *_identifiers(problem_tree)}
    renames = {name: _free_name(name, taken) for name in clashes if name != KERNEL_NAME}
    return renamed(section, renames)


def _bindings(tree: ast.Module) -> dict[str, str | None]:
    """Module-level names; an import maps to what it imports, so that equal imports do not clash, others to None."""
    found: dict[str, str | None] = {}
    for statement in module_scope(tree.body):
        for name in defined_names(statement):
            meaning = _imported(statement, name)
            found[name] = meaning if found.get(name, meaning) == meaning else None
    return found


def _imported(statement: ast.stmt, name: str) -> str | None:
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        prefix = f"{statement.module}." if isinstance(statement, ast.ImportFrom) else ""
        for alias in statement.names:
            if alias.asname == name:
                return prefix + alias.name
            if alias.asname is None and alias.name.partition(".")[0] == name:
                return prefix + name
    return None


def _identifiers(tree: ast.Module) -> Iterator[str]:
    return (node.id for node in walk(tree) if isinstance(node, ast.Name))


def _free_name(name: str, taken: Iterable[str]) -> str:
    taken, number = set(taken), 0
    candidate = f"kernel_{name}" if not name.startswith("_") else f"_kernel{name}"
    while candidate in taken:
        number += 1
        candidate = f"kernel{number}_{name}"
    return candidate
