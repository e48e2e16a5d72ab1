"""`cutesmith VERB …`: finds the verb's module, imports it only then, and hands the rest of the line to its `main`."""

from __future__ import annotations

import importlib
from difflib import get_close_matches

from cutesmith import __version__
from cutesmith.commands._run import EXIT_CODES, command
from cutesmith.errors import UsageError

VERBS = {
    "generate": "write a kernel for a PyTorch function, offline, and take it through all the stages",
    "lint": "check a file without running it: API names, DSL traps, forbidden calls",
    "compile": "compile for several architectures, with no GPU: registers, smem, occupancy, refusals",
    "check": "lint, compile, verify, benchmark and backup in one call, up to the first that fails",
    "verify": "compare kernel_fn with reference_fn on many inputs, in a confined process",
    "emulate": "run it on a CPU: findings with their line, a profile, the trace of a warp",
    "profile": "where its time goes and what to change: ncu on a GPU, else counts by line",
    "benchmark": "time it beside eager and torch.compile, cold L2, against the measured floor",
    "remote": "run a stage on a machine with a GPU over ssh: files go there, the verdict comes back",
    "checkpoint": "backup, revert, list and diff a kernel file; nothing is ever lost",
    "note": "append a prediction, change or measurement to DEVLOG.md beside a kernel file",
    "audit": "try problem files on a CPU: is the reference a function of all its inputs, are sizes sane",
    "doctor": "say what this machine has and what it lacks",
    "search": "look something up in the references: a section, an API name, an error code",
    "find": "the nearest example kernels for what you want to write, with the reason",
    "fetch": "bring an example here: from this package, an installed one, the cache or the network",
    "eval": "score generated kernels over a suite of tasks: run, report, compare, selftest",
    "skill": "install, uninstall or check the agent skill for Claude, Codex, Gemini, Cursor, Copilot",
    "mcp": "serve these verbs as tools over the Model Context Protocol (stdio)",
}
MAINTENANCE = {
    "check-references": "compile and run every code block of the references, resolve every name and link",
    "build-api-reference": "write references/api-*.md from the installed DSL, or say how they differ",
    "update-examples-index": "rebuild the index's CUTLASS part from a checkout: moved, new and gone paths",
}

HELP = """\
cutesmith turns a PyTorch function into a CuTe DSL kernel that is verified and timed honestly.

usage: cutesmith VERB …        (python -m cutesmith VERB …; each verb has --help and --json)

the path:
  problem.py ─► generate ─► kernel.py ─► lint ─► compile ─► verify ─► benchmark ─► report.html
  A problem file defines reference_fn(*inputs) and get_inputs(); a kernel file adds kernel_fn(*inputs).

verbs:
{verbs}

keeping the skill true:
{maintenance}

examples:
  cutesmith generate evals/tasks/level1/softmax.py --out out/softmax
  cutesmith compile kernel.py --arch sm_90a --json
  cutesmith verify kernel.py --rtol 1e-3 --atol 1e-3

{exit_codes}
"""


@command
def main(argv: list[str]) -> int:
    """Run one verb; returns its exit code (`cutesmith.verdicts.ExitCode`)."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(help_text(), end="")
        return 0
    verb, *rest = argv
    if verb in ("-V", "--version"):
        print(f"cutesmith {__version__}")
        return 0
    if verb not in VERBS | MAINTENANCE:
        close = get_close_matches(verb, VERBS, n=1, cutoff=0.5)
        known = f"Verbs: {', '.join(VERBS)}. See cutesmith --help."
        hint = f"Did you mean `cutesmith {close[0]}`?" if close else known
        raise UsageError(f"cutesmith has no verb {verb!r}", hint=hint)
    return int(importlib.import_module(f"cutesmith.commands.{verb.replace('-', '_')}").main(rest))


def help_text() -> str:
    """The text of `cutesmith --help`."""
    return HELP.format(verbs=_listed(VERBS, 12), maintenance=_listed(MAINTENANCE, 24), exit_codes=EXIT_CODES)


def _listed(verbs: dict[str, str], width: int) -> str:
    return "\n".join(f"  {verb:<{width}}{line}" for verb, line in verbs.items())
