"""Where the seconds of judging went in a run: of each stage, and within it of each process and what it did.

    python evals/studies/judging_time.py RUN_DIR [--json FILE]

Stages come from `results.jsonl` (wall time, without waiting for a GPU), phases from the verdicts; calls of two
processes that overlap count on both sides. Of each: kernels, seconds a kernel (median, 90th percentile, most),
their sum.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cutesmith.evals.reading import read_attempts  # noqa: E402

FIELDS = ("kernels", "median", "p90", "most", "sum")


def seconds_of(run: Path) -> dict[str, list[float]]:
    """Seconds by stage and by "stage: process phase", one number a kernel that was judged in this run."""
    found: dict[str, list[float]] = defaultdict(list)
    for attempt in read_attempts(run):
        if attempt.cached:
            continue
        for stage, seconds in attempt.seconds.items():
            found[stage].append(seconds)
        for name, seconds in phases_of(run / attempt.verdicts) if attempt.verdicts else ():
            found[name].append(seconds)
    return found


def phases_of(path: Path) -> Iterator[tuple[str, float]]:
    """The phases of one kernel's verdicts."""
    for stage, verdict in json.loads(path.read_bytes())["verdicts"].items():
        for phase, seconds in verdict.get("phases", {}).items():
            yield f"{stage}: {phase}", seconds


def row(values: list[float]) -> dict[str, float]:
    """The figures of one line."""
    p90 = quantiles(values, n=10, method="inclusive")[8] if len(values) > 1 else values[0]
    figures = (len(values), median(values), p90, max(values), sum(values))
    return dict(zip(FIELDS, (round(figure, 3) for figure in figures)))


def main() -> int:
    """Print the table, most seconds first within each stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--json", type=Path, help="write the table there as well")
    options = parser.parse_args()
    rows = {name: row(values) for name, values in seconds_of(options.run).items()}
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{'seconds':<34}" + "".join(f"{name:>10}" for name in FIELDS))
    for name in sorted(rows, key=lambda name: (name.partition(":")[0], ":" in name, -rows[name]["sum"])):
        print(f"{'  ' * (':' in name) + name:<34}" + "".join(f"{rows[name][field]:>10.10g}" for field in FIELDS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
