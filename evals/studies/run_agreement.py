#!/usr/bin/env python3
"""Whether two runs over the same kernels say the same: verdicts, and median times within a tolerance.

    cutesmith eval run --suite core --agent dir:KERNELS --no-cache --out ONE    (and once more: TWO)
    python evals/studies/run_agreement.py ONE TWO --out evals/results/h200/core/agreement.json

Compared are attempts on the same kernel bytes; a run that made them again may hold others. Exit code 1 when fewer
than 99 % of the verdicts agree, or a median pair lies further apart than --within (3 %) for more than 5 % of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cutesmith.evals.reading import read_attempts  # noqa: E402
from cutesmith.evals.records import KERNEL, Attempt  # noqa: E402

VERDICTS, MEDIANS = 0.99, 0.95


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs=2, type=Path, metavar="RUN")
    parser.add_argument("--within", type=float, default=0.03, metavar="SHARE", help="of medians (default: 0.03)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the comparison there")
    options = parser.parse_args(argv)
    found = compare(*options.runs, within=options.within)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({name: value for name, value in found.items() if name not in ("pairs", "flipped")}, indent=1))
    for flip in found["flipped"]:
        print(f"flipped: {flip['task']} #{flip['sample']}: {flip['verdicts'][0]} / {flip['verdicts'][1]}")
    agree = found["compared"] and found["verdicts_agree"] >= VERDICTS
    return int(not agree or (found["timed"] > 0 and found["medians_within"] < MEDIANS))


def compare(one: Path, two: Path, *, within: float) -> dict[str, Any]:
    """How many attempts on the same kernel agree, every pair of medians (µs), and what flipped."""
    first, second = ({(a.task, a.sample): a for a in read_attempts(run)} for run in (one, two))
    both = [(a, second[unit]) for unit, a in first.items() if unit in second]
    same = [(a, b) for a, b in both if a.kernel_sha256 and a.kernel_sha256 == b.kernel_sha256]
    flipped = [_flip(a, b) for a, b in same if said(a) != said(b)]
    pairs = [_pair(a, b) for a, b in same if _median(a) and _median(b)]
    ratios = sorted(abs(pair["ratio"] - 1.0) for pair in pairs)
    return {
        "runs": [one.name, two.name],
        "attempts": [len(first), len(second)],
        "compared": len(same),
        "other_kernels": len(both) - len(same),
        "verdicts_agree": round(1 - len(flipped) / len(same), 4) if same else 0.0,
        "timed": len(pairs),
        "medians_within": round(sum(ratio <= within for ratio in ratios) / len(ratios), 4) if ratios else 0.0,
        "median_difference": round(median(ratios), 4) if ratios else None,
        "largest_difference": round(ratios[-1], 4) if ratios else None,
        "flipped": flipped,
        "pairs": pairs,
    }


def said(attempt: Attempt) -> tuple[bool, str, str]:
    """What must be the same."""
    return attempt.correct, attempt.status, attempt.rule


def _flip(a: Attempt, b: Attempt) -> dict[str, Any]:
    return {"task": a.task, "sample": a.sample, "verdicts": [" ".join(map(str, said(each))) for each in (a, b)]}


def _pair(a: Attempt, b: Attempt) -> dict[str, Any]:
    medians = [_median(a), _median(b)]
    return {"task": a.task, "sample": a.sample, "medians_us": medians, "ratio": round(medians[1] / medians[0], 4)}


def _median(attempt: Attempt) -> float:
    timing = attempt.timings.get(KERNEL)
    return (timing.median_us if timing else None) or 0.0


if __name__ == "__main__":
    sys.exit(main())
