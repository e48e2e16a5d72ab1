"""Which problems of a KernelBench checkout cutesmith takes, and what the audit says of each.

python evals/studies/audit_kernelbench.py CHECKOUT [--level N] [--out RESULTS.jsonl] [--timeout S]

Full sizes take a CPU hours: a file is audited at the smaller sizes that `cutesmith eval run --reduced` takes
(`cutesmith/problems/smaller_sizes.py`), in a copy that is deleted. A line in the results says which. --resume goes on
in a file of results.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from cutesmith.audit.problem_audit import ProblemAuditor
from cutesmith.evals.records import Task
from cutesmith.evals.suites import load_suite
from cutesmith.evals.suites.reduced import ReducedProblem, reduce_problem


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
            found = reduce_problem(task.path, auditor)
            counts[task.level, found.verdict.status] += 1
            print(json.dumps(line(task, found)), file=out, flush=True)
    for (level, status), number in sorted(counts.items()):
        print(f"level {level}: {number} {status}", file=sys.stderr)
    return 0


def names_in(results: Path) -> set[str]:
    """The tasks that were audited before."""
    return {json.loads(text)["task"] for text in results.read_text(encoding="utf-8").splitlines()}


def line(task: Task, found: ReducedProblem) -> dict[str, object]:
    """What a reader of the results needs."""
    verdict = found.verdict
    return {
        "task": task.id,
        "status": verdict.status,
        "sizes": found.way,
        "tried": verdict.tried,
        "findings": [one.rule for one in verdict.findings],
        "summary": "" if verdict.passed and not verdict.findings else verdict.summary[:400],
        "messages": [one.message[:300] for one in verdict.findings],
        "seconds": verdict.seconds,
    }


if __name__ == "__main__":
    sys.exit(main())
