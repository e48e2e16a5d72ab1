"""Which problems of a KernelBench checkout cutesmith takes, and what the audit says of each.

python evals/studies/audit_kernelbench.py CHECKOUT [--level N] [--out RESULTS.jsonl] [--timeout S]

Full sizes take a CPU hours: a file is audited with the whole numbers at module scope made smaller, in a copy that is
deleted: even ones are halved until they are at most 16. Where the file refuses that, or comes out as unfit (a group
norm whose groups have one member left), large ones are divided by 32; then the batch is made 2; then numbers that
`get_inputs` alone uses are halved to 64; then none is changed. A line in the results says which. --resume goes on in a
file of results.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from cutesmith.audit.problem_audit import AuditVerdict, ProblemAuditor
from cutesmith.evals.records import Task
from cutesmith.evals.suites import load_suite
from cutesmith.verdicts import ExitCode

WAYS: dict[str, tuple[Callable[[int], int], Callable[[set[str], set[str]], bool]]] = {
    "all to 16": (lambda value: halved(value, 16), lambda names, shared: True),
    "large ones by 32": (lambda value: value // 32 if value % 512 == 0 else value, lambda names, shared: True),
    "batch to 2": (lambda value: halved(value, 2), lambda names, shared: names <= {"batch_size", "batch", "N"}),
    "those of get_inputs to 64": (lambda value: halved(value, 64), lambda names, shared: not names & shared),
}
"""How numbers change, and in which assignments, by their names and those that other parts than get_inputs use."""


def main() -> int:
    """Audit every problem; one JSON line each, counts at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--level", type=int, action="append", default=[])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--timeout", type=float, default=30.0)
    options = parser.parse_args()
    suite = load_suite("kernelbench", path=options.checkout, levels=options.level)
    counts: Counter[tuple[int, str]] = Counter()
    done = names_in(options.out) if options.resume and options.out else set()
    out = options.out.open("a", encoding="utf-8") if options.out else sys.stdout
    with ProblemAuditor(timeout=options.timeout) as auditor:
        for task in (task for task in suite.tasks if task.id not in done):
            way, verdict = audit(task, auditor)
            counts[task.level, verdict.status] += 1
            print(json.dumps(line(task, way, verdict)), file=out, flush=True)
    for (level, status), number in sorted(counts.items()):
        print(f"level {level}: {number} {status}", file=sys.stderr)
    return 0


def audit(task: Task, auditor: ProblemAuditor) -> tuple[str, AuditVerdict]:
    """The first way whose audit passes, else the first that the reference takes, else the last; a time-out ends it."""
    unfit, found = None, None
    for way, source in smaller_sources(task.path.read_text(encoding="utf-8")):
        verdict = audit_copy(task.path.name, source, auditor)
        found = way, verdict
        if verdict.passed:
            return found
        unfit = unfit or (found if verdict.findings else None)
        if verdict.exit_code == ExitCode.TIMED_OUT:
            break
    assert found is not None
    return unfit or found


def audit_copy(name: str, source: str, auditor: ProblemAuditor) -> AuditVerdict:
    """The audit of a file of this name and text."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / name
        copy.write_text(source, encoding="utf-8")
        return auditor.audit(copy)


def smaller_sources(source: str) -> Iterator[tuple[str, str]]:
    """The file with smaller numbers, the smallest first, then as it is."""
    tree = ast.parse(source)
    shared = names_used(tree, lambda name: name != "get_inputs")
    for way, (smaller, is_meant) in WAYS.items():
        changed = ast.parse(source)
        for statement in changed.body:
            if isinstance(statement, ast.Assign) and is_meant(names_of(statement), shared):
                Smaller(smaller).visit(statement.value)
        yield way, ast.unparse(changed)
    yield "whole", source


class Smaller(ast.NodeTransformer):
    """Changes whole numbers, in place."""

    def __init__(self, smaller: Callable[[int], int]) -> None:
        self.smaller = smaller

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        """One number; True is none."""
        if type(node.value) is int:
            node.value = self.smaller(node.value)
        return node


def halved(value: int, most: int) -> int:
    """Halved while it is larger than `most`, and even."""
    while value > most and value % 2 == 0:
        value //= 2
    return value


def names_of(statement: ast.Assign) -> set[str]:
    """The names that an assignment binds."""
    return {node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def names_used(tree: ast.Module, accepted: Callable[[str], bool]) -> set[str]:
    """The names that the functions and classes of these names read."""
    parts = [part for part in tree.body if isinstance(part, (ast.FunctionDef, ast.ClassDef)) and accepted(part.name)]
    return {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)}


def names_in(results: Path) -> set[str]:
    """The tasks that were audited before."""
    return {json.loads(text)["task"] for text in results.read_text(encoding="utf-8").splitlines()}


def line(task: Task, way: str, verdict: AuditVerdict) -> dict[str, object]:
    """What a reader of the results needs."""
    return {
        "task": task.id,
        "status": verdict.status,
        "sizes": way,
        "tried": verdict.tried,
        "findings": [found.rule for found in verdict.findings],
        "summary": "" if verdict.passed and not verdict.findings else verdict.summary[:400],
        "messages": [found.message[:300] for found in verdict.findings],
        "seconds": verdict.seconds,
    }


if __name__ == "__main__":
    sys.exit(main())
