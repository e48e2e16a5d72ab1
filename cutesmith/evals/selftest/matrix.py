"""The outcomes as Markdown: one line for each exploit, one a mechanism, one a kernel."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

from cutesmith.evals.selftest.specimens import Specimen
from cutesmith.evals.selftest.trial import Outcome
from cutesmith.judge.exploits import EXPLOITS

SENTENCE = 162  # characters of a verdict's sentence


def markdown(outcomes: Sequence[Outcome], left_out: Sequence[Specimen] = ()) -> str:
    """All three tables; `left_out` are kernels that this machine cannot show."""
    tables = {
        "Exploits": rows_table(outcomes, left_out),
        "Mechanisms": mechanisms_table(outcomes),
        "Kernels": kernels_table(outcomes),
    }
    return "\n\n".join(f"## {name}\n\n{table}" for name, table in tables.items())


def rows_table(outcomes: Sequence[Outcome], left_out: Sequence[Specimen] = ()) -> str:
    """One line for each exploit: its kernels with their verdicts, what caught them, the honest ones that passed."""
    lines = []
    for row, exploit in EXPLOITS.items():
        cheats = [outcome for outcome in outcomes if outcome.specimen.rule == row and not outcome.specimen.honest]
        honest = [outcome for outcome in outcomes if outcome.specimen.rule == row and outcome.specimen.honest]
        absent = [specimen for specimen in left_out if specimen.rule == row]
        marks = {"right": "", "gap": "**GAP** ", "WRONG": "**WRONG** ", "closed": "**closed** "}
        shown = [
            f"{marks[o.result]}{o.specimen.name}: {f'{o.status} {o.rule}'.strip()}"
            + (f" ({o.specimen.gap})" if o.result == "gap" else "")
            for o in cheats
        ]
        shown += [f"{s.name}: needs {s.needs}" for s in absent if not s.honest]
        caught = sorted({outcome.caught_by for outcome in cheats if outcome.result == "right"})
        passed = [outcome.specimen.name for outcome in honest if outcome.result == "right"]
        lines.append([row, exploit.what, exploit.defence, "; ".join(shown), ", ".join(caught), ", ".join(passed)])
    return _table(("row", "exploit", "defence", "kernels", "caught by", "honest ones that passed"), lines)


def mechanisms_table(outcomes: Sequence[Outcome]) -> str:
    """Which check caught which kernels: one that catches none is not shown to work."""
    caught: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.caught_by and outcome.result == "right":
            caught.setdefault(outcome.caught_by, []).append(outcome.specimen.name)
    return _table(("mechanism", "kernels that it caught"), [[m, ", ".join(k)] for m, k in sorted(caught.items())])


def kernels_table(outcomes: Sequence[Outcome]) -> str:
    """One line a kernel."""
    lines = []
    for row in (outcome.row() for outcome in outcomes):
        cells = [str(row[key]) for key in ("rule", "kernel", "expected", "got", "result")]
        lines.append([*cells, f"{row['seconds']:.0f}", shorten(row["sentence"], SENTENCE, placeholder=" …")])
    return _table(("rule", "kernel", "expected", "got", "result", "seconds", "verdict"), lines)


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    cells = [
        [" ".join(text.replace("|", "/").split()) for text in line] for line in [head, ["---"] * len(head), *lines]
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def counts(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """How many came out how."""
    found = [outcome.result for outcome in outcomes]
    cheats = [outcome for outcome in outcomes if not outcome.specimen.honest]
    rows = {outcome.specimen.rule for outcome in cheats if outcome.result == "right"} - {""}
    return {
        "kernels": len(outcomes),
        "right": found.count("right"),
        "wrong": found.count("WRONG") + found.count("closed"),
        "gaps": found.count("gap"),
        "honest": len(outcomes) - len(cheats),
        "honest_passed": sum(o.specimen.honest and o.result == "right" for o in outcomes),
        "rows_caught": len(rows),
        "rows": len(EXPLOITS),
    }


def write(folder: Path, outcomes: Sequence[Outcome], left_out: Sequence[Specimen], title: str) -> None:
    """matrix.md and matrix.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "matrix.md").write_text(f"{title}\n\n{markdown(outcomes, left_out)}\n", encoding="utf-8")
    whole = {"counts": counts(outcomes), "kernels": [outcome.row() for outcome in outcomes]}
    (folder / "matrix.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
