"""`lint_file`: every rule over one file, into a verdict. The file is read and parsed, never imported."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from cutesmith.errors import ContractError, UnavailableError
from cutesmith.lint import (
    contract_rules,
    control_flow_rules,
    environment_rules,
    host_rules,
    launch_rules,
    name_rules,
    value_rules,
)
from cutesmith.lint.catalogue import RULES
from cutesmith.lint.source import Source, SyntaxFault, finding
from cutesmith.lint.symbols import SymbolTable, load_symbols
from cutesmith.verdicts import ExitCode, Finding, LintVerdict


def lint_file(path: str | os.PathLike[str]) -> LintVerdict:
    """Check a kernel file against the installed DSL and the traps of `RULES`, without running it.

    Exit code LINT when there is an error; warnings and notes pass. USAGE, with one sentence, for what is no readable
    Python
    file: missing, a folder, binary, over the size limit, a syntax error (which is a finding, CS001, too).
    """
    start = time.perf_counter()
    file = Path(path)
    try:
        source = Source.read(file)
    except SyntaxFault as fault:
        broken = Finding(
            rule="CS001",
            severity="error",
            line=fault.line,
            column=fault.column,
            message=fault.message,
            fix=RULES["CS001"].fix,
        )
        return _verdict(file, start, ExitCode.USAGE, fault.message, (broken,))
    except ContractError as error:
        return _verdict(file, start, ExitCode.USAGE, error.message, ())
    findings = lint_source(source)
    code = ExitCode.LINT if any(f.severity == "error" for f in findings) else ExitCode.PASSED
    return _verdict(file, start, code, _summary(findings), findings)


def lint_source(source: Source) -> tuple[Finding, ...]:
    """Every finding of a parsed file that no comment suppresses, each once, in line order."""
    kept = {f for f in _findings(source) if not source.suppressed(f)}
    return tuple(sorted(kept, key=lambda f: (f.line, f.column, f.rule, f.message)))


def _findings(source: Source) -> Iterator[Finding]:
    symbols = _symbols(source)
    if symbols is not None:
        yield from name_rules.check(source, symbols)
    elif source.uses_dsl:
        yield finding("CS002", 1, "nvidia-cutlass-dsl is not installed: names were not checked.")
    yield from environment_rules.check(source, symbols)
    yield from control_flow_rules.check(source)
    yield from value_rules.check(source)
    yield from host_rules.check(source)
    yield from launch_rules.check(source, symbols)
    yield from contract_rules.check(source)
    yield from _suppressions(source)


def _symbols(source: Source) -> SymbolTable | None:
    """The DSL's names, when the file needs them and the DSL is installed."""
    if not source.uses_dsl and "CUTE_DSL" not in source.text:
        return None
    try:
        return load_symbols()
    except UnavailableError:
        return None


def _suppressions(source: Source) -> Iterator[Finding]:
    for line, ids in source.ignores.items():
        for unknown in sorted(ids - RULES.keys()):
            yield finding("CS003", line, f"There is no rule {unknown}.")


def _summary(findings: tuple[Finding, ...]) -> str:
    counts = {kind: sum(f.severity == kind for f in findings) for kind in ("error", "warning", "note")}
    parts = [f"{count} {kind}{'s' if count != 1 else ''}" for kind, count in counts.items() if count]
    return f"{', '.join(parts) or 'nothing found'}."


def _verdict(file: Path, start: float, code: ExitCode, summary: str, findings: tuple[Finding, ...]) -> LintVerdict:
    seconds = time.perf_counter() - start
    return LintVerdict(exit_code=code, summary=summary, seconds=seconds, path=str(file), findings=findings)
