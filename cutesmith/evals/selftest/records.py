"""Outcomes on disk, one JSON file a kernel, written as each ends: a trial that was interrupted can go on."""

from __future__ import annotations

import json
from pathlib import Path

from cutesmith.evals.selftest.specimens import Specimen
from cutesmith.evals.selftest.trial import Outcome

FOLDER = "verdicts"


def keep(folder: Path, outcome: Outcome, on: str) -> None:
    """Write one outcome with the hash of its kernel and where it was judged; replaces an older one."""
    path = _path(folder, outcome.specimen)
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"on": on, "sha256": outcome.specimen.sha256, "exit_code": outcome.exit_code, "summary": outcome.summary}
    record |= {"seconds": round(outcome.seconds, 1), "verdict": outcome.verdict}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def kept(folder: Path, specimen: Specimen, on: str) -> Outcome | None:
    """The outcome of the very same file in the same place; None where there is none that can be read."""
    try:
        record = json.loads(_path(folder, specimen).read_text(encoding="utf-8"))
        if (record["on"], record["sha256"]) != (on, specimen.sha256):
            return None
        named = {name: record[name] for name in ("exit_code", "summary", "seconds", "verdict")}
    except (OSError, ValueError, KeyError, TypeError):  # not there, cut in the middle, or of another kind
        return None
    return Outcome(specimen=specimen, **named)


def _path(folder: Path, specimen: Specimen) -> Path:
    return folder / FOLDER / f"{specimen.name}.json"
