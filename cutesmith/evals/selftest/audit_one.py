"""One problem file audited, its verdict as JSON: `python -m cutesmith.evals.selftest.audit_one FILE SECONDS`."""

from __future__ import annotations

import sys

from cutesmith.audit.problem_audit import audit_problem


def main(path: str, seconds: str) -> int:
    """Print the verdict; returns its exit code."""
    verdict = audit_problem(path, timeout=float(seconds))
    print(verdict.to_json())
    return int(verdict.exit_code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
