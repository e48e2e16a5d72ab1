"""`lint_file`: every rule over one file, into a verdict. The file is read and parsed, never imported."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cutesmith.errors import ContractError, UnavailableError
from cutesmith.lint import (
    constant_branch_rules,
    contract_rules,
    control_flow_rules,
    coordinate_rules,
    engine_rules,
    environment_rules,
    host_rules,
    launch_rules,
    name_rules,
    staged_value_rules,
    value_rules,
)
from cutesmith.lint.rule import Rule
from cutesmith.lint.source import Source, SyntaxFault, finding
from cutesmith.lint.symbols import SymbolTable, load_symbols
from cutesmith.verdicts import ExitCode, Finding, LintVerdict

CS001 = Rule(
    "CS001",
    "error",
    "the file is not Python",
    "A syntax error: nothing else can be checked. Exit code 2.",
    "Correct the line.",
    "def kernel_fn(x:\n    return x",
    "def kernel_fn(x):\n    return x",
)

CS002 = Rule(
    "CS002",
    "note",
    "the DSL is not installed here",
    "Names, keywords and deprecations (CS101–CS107) are judged against the installed package; without it only "
    "the other rules run.",
    "pip install 'nvidia-cutlass-dsl>=4.8'",
    "",
    "",
)

CS003 = Rule(
    "CS003",
    "note",
    "a suppression names no rule",
    "`# cutesmith: ignore[…]` with an unknown rule id suppresses nothing.",
    "Use an id of `cutesmith lint --rules`.",
    "x = 1  # cutesmith: ignore[CS999]",
    "x = 1  # cutesmith: ignore[CS101]",
)
CHECKS = (
    name_rules,
    environment_rules,
    control_flow_rules,
    staged_value_rules,
    constant_branch_rules,
    value_rules,
    host_rules,
    launch_rules,
    engine_rules,
    coordinate_rules,
    contract_rules,
)
_FOUND = [value for module in CHECKS for value in vars(module).values() if isinstance(value, Rule)]
RULES: dict[str, Rule] = {rule.id: rule for rule in sorted([CS001, CS002, CS003, *_FOUND], key=lambda rule: rule.id)}
"""Every rule by its id; each stands beside its check."""


def lint_file(path: str | os.PathLike[str], *, problem: bool = False) -> LintVerdict:
    """Check a kernel file against the installed DSL and the traps of `RULES`, without running it.

    `problem`: a file of its own has the reference and the inputs, so that these are not missed here.

    Exit code LINT when there is an error; warnings and notes pass. USAGE, with one sentence, for a path that is not a
    readable Python file: missing, a folder, binary, over the size limit, or with a syntax error (also finding CS001).
    """
    start = time.perf_counter()
    file = Path(path)
    try:
        source = Source.read(file)
    except SyntaxFault as fault:
        broken = replace(finding(CS001, fault.line, fault.message), column=fault.column)
        return _verdict(file, start, ExitCode.USAGE, fault.message, (broken,))
    except ContractError as error:
        return _verdict(file, start, ExitCode.USAGE, error.message, ())
    findings = lint_source(source, problem=problem)
    code = ExitCode.LINT if any(f.severity == "error" for f in findings) else ExitCode.PASSED
    return _verdict(file, start, code, _summary(findings), findings)


def lint_source(source: Source, *, problem: bool = False) -> tuple[Finding, ...]:
    """Every finding of a parsed file that no comment suppresses, each once, in line order."""
    kept = {f for f in _findings(source, problem=problem) if not source.suppressed(f)}
    return tuple(sorted(kept, key=lambda f: (f.line, f.column, f.rule, f.message)))


def _findings(source: Source, *, problem: bool) -> Iterator[Finding]:
    symbols = _symbols(source)
    if symbols is not None:
        yield from name_rules.check(source, symbols)
    elif source.uses_dsl:
        yield finding(CS002, 1, "nvidia-cutlass-dsl is not installed: names were not checked.")
    yield from environment_rules.check(source, symbols)
    yield from control_flow_rules.check(source)
    yield from staged_value_rules.check(source)
    yield from constant_branch_rules.check(source)
    yield from value_rules.check(source)
    yield from host_rules.check(source)
    yield from launch_rules.check(source, symbols)
    yield from engine_rules.check(source)
    yield from coordinate_rules.check(source)
    yield from contract_rules.check(source, problem=problem)
    for line, ids in source.ignores.items():
        yield from (finding(CS003, line, f"There is no rule {unknown}.") for unknown in sorted(ids - RULES.keys()))


def _symbols(source: Source) -> SymbolTable | None:
    """The DSL's names, when the file needs them and the DSL is installed."""
    if not source.uses_dsl and "CUTE_DSL" not in source.text:
        return None
    try:
        return load_symbols()
    except UnavailableError:
        return None


def _summary(findings: tuple[Finding, ...]) -> str:
    counts = {kind: sum(f.severity == kind for f in findings) for kind in ("error", "warning", "note")}
    parts = [f"{count} {kind}{'s' if count != 1 else ''}" for kind, count in counts.items() if count]
    return f"{', '.join(parts) or 'nothing found'}."


def _verdict(file: Path, start: float, code: ExitCode, summary: str, findings: tuple[Finding, ...]) -> LintVerdict:
    seconds = time.perf_counter() - start
    return LintVerdict(exit_code=code, summary=summary, seconds=seconds, path=str(file), findings=findings)
