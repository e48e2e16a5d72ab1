#!/usr/bin/env python3
"""Three small problems for real: Claude writes the kernels, within a limit of dollars for each.

    make live                                                    # needs ANTHROPIC_API_KEY
    python evals/agent_sessions/live_sessions.py softmax --dollars 0.50 -- --max-turns 10 --no-draft

What it may cost at most is said first. Each problem is a session `cutesmith generate … --agent claude --yes`; what
stands after `--` is handed to every one of them. OUT/TIME/NAME/ holds the sessions, OUT/TIME/summary.json the table.
Ctrl-C lets the running session end with its best kernel and begins no other. Exit code: 0 when every session delivered
a kernel, 1 otherwise, 7 without a key.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from cutesmith.agent.models.anthropic_model import DEFAULT_MODEL, key_present  # noqa: E402
from cutesmith.agent.models.prices import PRICES_AS_OF, price_of  # noqa: E402
from cutesmith.checkpoints import write_atomically  # noqa: E402
from cutesmith.sandbox.shared_fork_server import lend_fork_server  # noqa: E402
from cutesmith.verdicts import ExitCode, strict_json  # noqa: E402
from evals.agent_sessions.run_agent_sessions import SCENARIOS, in_columns  # noqa: E402

PROBLEMS = {
    "softmax": str(SCENARIOS / "repaired" / "problem.py"),
    "rms_norm": str(SCENARIOS / "first_try" / "problem.py"),
    "cumulative_sum": "Cumulative sum along the rows of a float32 matrix of 4096 x 4096, for an H100",
}
"""Two for which the offline generator has a draft, and one that begins as a sentence and has none."""
COLUMNS = ("problem", "status", "median_us", "floor_percent", "speedups", "turns", "tokens", "dollars", "seconds")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chosen problems one after the other; returns the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    own, handed_on = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, [])
    options = _parser().parse_args(own)
    if unknown := sorted(set(options.names) - set(PROBLEMS)):
        print(f"no problem {', '.join(unknown)}; there are {', '.join(PROBLEMS)}", file=sys.stderr)
        return ExitCode.USAGE
    if not key_present(os.environ):
        print("make live asks Claude for real: set ANTHROPIC_API_KEY, then call it again", file=sys.stderr)
        return ExitCode.UNAVAILABLE
    if not options.dollars > 0 or price_of(options.model) is None:
        print(f"{options.dollars:g} dollars for {options.model} is not a limit that can be kept", file=sys.stderr)
        return ExitCode.USAGE
    names = options.names or list(PROBLEMS)
    print(announcement(names, options), file=sys.stderr, flush=True)
    out = Path(options.out) / time.strftime("%Y%m%d-%H%M%S")
    limits = ["--agent=claude", f"--model={options.model}", f"--max-dollars={options.dollars:g}", "--yes", *handed_on]
    rows = list(run_all(names, out, limits))
    summary = {"model": options.model, "dollars_each": options.dollars, "sessions": rows}
    write_atomically(out / "summary.json", (strict_json(summary, indent=1) + "\n").encode())
    print(in_columns([COLUMNS, *(cells(row) for row in rows)]))
    print(f"written: {out}")
    return 0 if len(rows) == len(names) and all(row["exit_code"] == 0 for row in rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROBLEMS)} (default: all)")
    parser.add_argument("--dollars", type=float, default=2.0, metavar="USD", help="for each (default: %(default)g)")
    parser.add_argument("--model", default=DEFAULT_MODEL, metavar="NAME", help="default: %(default)s")
    parser.add_argument("--out", default="cutesmith-out/live", metavar="DIR", help="default: %(default)s")
    return parser


def announcement(names: Sequence[str], options: argparse.Namespace) -> str:
    """What this may cost."""
    sessions = "1 session" if len(names) == 1 else f"{len(names)} sessions"
    return (
        f"{sessions} with {options.model}, at most {options.dollars:.2f} dollars each by the prices of {PRICES_AS_OF}: "
        f"{len(names) * options.dollars:.2f} dollars in all (a session may pass its limit by what its last answer "
        "costs more than the one before)"
    )


def run_all(names: Sequence[str], out: Path, arguments: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A row for each session that was begun."""
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        print(f"== {name}", file=sys.stderr, flush=True)
        started = time.monotonic()
        command = [sys.executable, "-m", "cutesmith", "generate", PROBLEMS[name], *arguments, f"--out={out / name}"]
        code, interrupted = run_command(command)
        yield row_of(name, code, out / name / "result.json", time.monotonic() - started)
        if interrupted:
            return


def run_command(command: Sequence[str]) -> tuple[int, bool]:
    """Its exit code, and whether somebody pressed Ctrl-C: the session gets that too, and ends with what it has."""
    path = os.pathsep.join(p for p in (str(REPOSITORY), os.environ.get("PYTHONPATH", "")) if p)
    interrupted = False
    with lend_fork_server() as (variables, descriptors):  # PyTorch and the DSL are imported once for all sessions
        environment = {**os.environ, "PYTHONPATH": path, **variables}
        session = subprocess.Popen(command, env=environment, pass_fds=descriptors, stdout=subprocess.DEVNULL)
    with session:
        while True:
            try:
                return session.wait(), interrupted
            except KeyboardInterrupt:
                interrupted = True


def row_of(name: str, code: int, result: Path, seconds: float) -> dict[str, Any]:
    """What the summary keeps of a session; one that could not begin has its exit code only."""
    verdict: Mapping[str, Any] = json.loads(result.read_text("utf-8")) if result.is_file() else {}
    return {
        "problem": name,
        "status": verdict.get("status", ExitCode(code).name.lower() if code in set(ExitCode) else f"exit {code}"),
        "exit_code": code,
        "median_us": verdict.get("median_us"),
        "floor_percent": verdict.get("floor_percent"),
        "speedups": verdict.get("speedups", {}),
        "turns": verdict.get("turns", 0),
        "tokens": sum(verdict.get("usage", {}).values()),
        "dollars": verdict.get("dollars"),
        "seconds": round(seconds, 1),
        "summary": verdict.get("summary", ""),
    }


def cells(row: Mapping[str, Any]) -> list[str]:
    """A row as text, in the order of COLUMNS."""
    speedups = ", ".join(f"{name} {ratio:.2f}x" for name, ratio in row["speedups"].items() if ratio)
    numbers = {"median_us": "{:.2f}", "floor_percent": "{:.0f}", "dollars": "{:.4f}", "tokens": "{:,}"}
    shown = {**row, "speedups": speedups}
    shown |= {key: "" if row[key] is None else form.format(row[key]) for key, form in numbers.items()}
    return [str(shown[key]) for key in COLUMNS]


if __name__ == "__main__":
    sys.exit(main())
