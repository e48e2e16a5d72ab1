"""`cutesmith checkpoint backup | list | diff | revert FILE`: versions of a kernel file that no accident loses."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cutesmith.checkpoints import Checkpoint, CheckpointStore
from cutesmith.commands._run import command, verb_parser
from cutesmith.errors import UsageError
from cutesmith.verbs.record_verbs import CHECKPOINT
from cutesmith.verdicts import ExitCode, strict_json

DESCRIPTION = """\
Keep versions of a kernel file in .cutesmith/checkpoints/ beside it, each with the verdict that held for it.

  backup FILE           keep the file as it is now
  list FILE             every checkpoint, oldest first
  diff FILE [A [B]]     from A (default: the newest that differs) to B (default: the file as it is)
  revert FILE [A]       put A back; what the file holds now is kept first

A checkpoint is named by its number or by the first characters of its hash."""

EXAMPLES = (
    'cutesmith checkpoint backup kernel.py --note "vectorised loads"',
    "cutesmith verify kernel.py --json | cutesmith checkpoint backup kernel.py --verdict -",
    "cutesmith checkpoint revert kernel.py 3",
)

MOST_VERSIONS = {"backup": 0, "list": 0, "revert": 1, "diff": 2}


@command
def main(argv: list[str]) -> int:
    """Run the verb; returns its exit code."""
    options = verb_parser(CHECKPOINT, DESCRIPTION, examples=EXAMPLES).parse_args(argv)
    store, action = CheckpointStore(options.file), options.action
    if len(options.versions) > (most := MOST_VERSIONS[action]):
        count = f"at most {most}" if most else "no"
        raise UsageError(f"checkpoint {action} takes {count} CHECKPOINT, not {len(options.versions)}")
    fields: dict[str, object]
    if action == "backup":
        kept = store.backup(note=options.note, verdict=_verdict(options.verdict))
        text = f"kept {store.path.name} as checkpoint {kept.number} ({kept.hash[:12]})"
        fields = {"checkpoint": kept}
    elif action == "revert":
        put_back = store.revert(*options.versions, note=options.note)
        text = f"{store.path.name} is checkpoint {put_back.number} ({put_back.hash[:12]}) again; what it held is kept"
        fields = {"checkpoint": put_back}
    elif action == "list":
        all_kept = store.checkpoints()
        text = "\n".join(_table(all_kept)) if all_kept else f"{store.path.name} has no checkpoints"
        fields = {"checkpoints": all_kept}
    else:
        difference = store.diff(*options.versions)
        text, fields = difference.rstrip("\n") or "no difference", {"diff": difference}
    head = {"stage": "checkpoint", "status": "passed", "exit_code": ExitCode.PASSED, "path": options.file}
    print(strict_json({**head, **fields}) if options.json else text)
    return ExitCode.PASSED


def _table(kept: Sequence[Checkpoint]) -> Iterator[str]:
    yield f"{'':>4} {'time (UTC)':<19} {'hash':<12} {'verdict':<22} note"
    for c in kept:
        time = c.time[:19].replace("T", " ")
        median = c.verdict.get("median_us")
        verdict = f"{c.verdict.get('status', '-')}{f' {median:.1f} us' if isinstance(median, (int, float)) else ''}"
        yield f"{c.number:>4} {time:<19} {c.hash[:12]} {verdict:<22} {c.note}".rstrip()


def _verdict(source: str | None) -> dict[str, Any]:
    """The verdict's JSON object from a file or stdin, its candidate's median lifted out of a benchmark's timings."""
    if source is None:
        return {}
    try:
        verdict = json.loads(sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--verdict {source}: {error}", hint="Give what a verb prints with --json.") from error
    if not isinstance(verdict, dict):
        raise UsageError(f"--verdict {source} does not hold a JSON object", hint="Give what a verb prints with --json.")
    timings = verdict.get("timings")
    if isinstance(timings, list) and timings and isinstance(timings[0], dict):
        verdict.setdefault("median_us", timings[0].get("median_us"))
    return verdict
