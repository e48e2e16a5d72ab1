"""`cutesmith eval SUBCOMMAND …`: finds the subcommand's module, imports it only then, and hands on the rest."""

from __future__ import annotations

import importlib
from difflib import get_close_matches

from cutesmith.commands._run import EXIT_CODES, command
from cutesmith.errors import UsageError

SUBCOMMANDS = {
    "compare": "two runs task by task: what flipped, what got faster or slower beyond noise",
    "leaderboard": "runs ranked by fast_1, ties marked",
    "report": "numbers from the raw samples: one page for one run or several, Markdown, CSV",
    "run": "take a suite's tasks, have kernels made or take somebody's, and judge them; resumable",
    "selftest": "the judge against kernels that cheat, and against honest ones that look like them",
}

HELP = """\
cutesmith eval scores generated kernels: a suite of tasks, somebody who writes kernels, one judge (docs/evals.md).

usage: cutesmith eval SUBCOMMAND …        (each has --help and --json)

{subcommands}

examples:
  cutesmith eval run --suite core --agent draft --out RUN
  cutesmith eval run --suite core --agent dir:their_kernels --out RUN2
  cutesmith eval run --resume --out RUN
  cutesmith eval report RUN
  cutesmith eval run --suite level2 --agent claude --bare --out BARE -- --max-dollars 1
  cutesmith eval compare BARE WHOLE

{exit_codes}
"""


@command
def main(argv: list[str]) -> int:
    """Run the subcommand; returns its exit code."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        listed = "\n".join(f"  {name:<12}{line}" for name, line in SUBCOMMANDS.items())
        print(HELP.format(subcommands=listed, exit_codes=EXIT_CODES), end="")
        return 0
    name, *rest = argv
    if name not in SUBCOMMANDS:
        close = get_close_matches(name, SUBCOMMANDS, n=1, cutoff=0.5)
        hint = f"Did you mean `cutesmith eval {close[0]}`?" if close else f"There are: {', '.join(SUBCOMMANDS)}."
        usage = "usage: cutesmith eval SUBCOMMAND …"
        raise UsageError(f"cutesmith eval has no subcommand {name!r}", hint=f"{hint}\n{usage}")
    return int(importlib.import_module(f"cutesmith.commands.eval_{name}").main(rest))
