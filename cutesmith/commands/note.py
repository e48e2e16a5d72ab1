"""`cutesmith note FILE`: an entry in the development log beside a kernel file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cutesmith.commands._run import command, verb_parser
from cutesmith.devlog import append_entry
from cutesmith.errors import UsageError
from cutesmith.verbs.record_verbs import NOTE
from cutesmith.verdicts import ExitCode, strict_json

DESCRIPTION = """\
Append an entry to DEVLOG.md beside a kernel file: what you predict, what you changed, what was measured, headed by the
file's name, hash and time. Write the prediction before the measurement."""

EXAMPLES = (
    'cutesmith note kernel_v2.py --prediction "31 us: one read, one write at 4.2 TB/s" --change "16-byte loads"',
    'cutesmith note kernel_v2.py --measurement "36.3 us, 87 % of the floor"',
    "cutesmith verify kernel_v2.py --json | cutesmith note kernel_v2.py --verdict -",
)


@command
def main(argv: list[str]) -> int:
    """Run the verb; returns its exit code."""
    options = verb_parser(NOTE, DESCRIPTION, examples=EXAMPLES).parse_args(argv)
    fields = {name: getattr(options, name) for name in ("prediction", "change", "measurement", "note")}
    fields["verdict"] = _verdict(options.verdict) if options.verdict else ""
    log = append_entry(options.file, fields)
    shown = {"stage": "note", "status": "passed", "exit_code": ExitCode.PASSED, "log": str(log)}
    print(strict_json(shown) if options.json else f"noted in {log}")
    return ExitCode.PASSED


def _verdict(source: str) -> str:
    """Stage, status and summary of a verdict's JSON, in a line."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
        verdict = json.loads(text)
        return f"{verdict['stage']}: {verdict['status']}. {verdict['summary']}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "Pipe it in: cutesmith verify kernel.py --json | cutesmith note kernel.py --verdict -"
        raise UsageError(f"{source} does not hold a verdict's JSON: {error}", hint=hint) from error
