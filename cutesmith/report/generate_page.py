"""The page of `generate`: the generator's result and the kernel's source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutesmith.report.charts import roofline, time_chart
from cutesmith.report.environment import render
from cutesmith.report.highlight import highlight
from cutesmith.report.stages import KINDS, Stages
from cutesmith.verdicts import GenerateVerdict


@dataclass(frozen=True, kw_only=True)
class CandidateRow:
    """A configuration of the table: only the settings that differ from the others', and its costs (bytes, percent)."""

    configuration: Mapping[str, object]
    registers: int | None
    spills: int
    smem: int | None
    occupancy: float | None
    median_us: float | None
    status: str
    kind: str
    summary: str
    chosen: bool


def render_report(verdict: GenerateVerdict, environment: Mapping[str, str], source: str = "") -> str:
    """The whole page for a verdict, the machine that it was found on, and the kernel's source."""
    stages = Stages.read({stage["stage"]: stage for stage in verdict.stages})
    first = verdict.tried[0].get("configuration") or {} if verdict.tried else {}
    varying = varying_settings(map(settings_of, verdict.tried))
    return render(
        "generate.html.j2",
        result=verdict,
        name=Path(verdict.problem or "problem").name,
        kind=KINDS.get(verdict.status, "bad"),
        stages=stages,
        facts=key_facts(verdict, stages),
        chart=time_chart(stages.benchmark) if stages.benchmark else None,
        roofline=roofline(stages.benchmark) if stages.benchmark else None,
        tried=[candidate_row(candidate, varying) for candidate in verdict.tried],
        common=[(key, value) for key, value in first.items() if key not in varying],
        environment=environment,
        lines=highlight(source),
    )


def key_facts(verdict: GenerateVerdict, stages: Stages) -> list[tuple[str, str]]:
    """The few numbers that a reader looks for first, as (label, value)."""
    facts = []
    if stages.median_us:
        facts.append(("median time", f"{stages.median_us:,.1f} µs"))
    if best := stages.best_baseline:
        facts.append((f"against {best[0]}", f"{best[1]:.2f}×"))
    if stages.benchmark and stages.benchmark.floor_percent:
        facts.append(("of the measured floor", f"{stages.benchmark.floor_percent:.1f} %"))
    if verdict.pattern:
        facts.append(("pattern", verdict.pattern))
    if counted := stages.counted:
        facts.append(counted)
    if stages.registers is not None:
        facts.append(("registers", str(stages.registers)))
    return facts


def settings_of(candidate: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a configuration that was tried, and the cover that it belongs to."""
    return {"cover": candidate.get("cover", ""), **(candidate.get("configuration") or {})}


def varying_settings(configurations: Iterable[Mapping[str, Any]]) -> list[str]:
    """The settings in which the configurations differ, in their order."""
    known = list(configurations)
    names = dict.fromkeys(name for configuration in known for name in configuration)
    return [name for name in names if len({str(c.get(name)) for c in known}) > 1]


def candidate_row(candidate: Mapping[str, Any], varying: Sequence[str]) -> CandidateRow:
    """A row for the JSON object of a configuration that was tried."""
    settings = settings_of(candidate)
    stages = Stages.read({"compile": candidate["compile"]} if candidate.get("compile") else {})
    kernels, status = stages.kernels, str(candidate.get("status", ""))
    return CandidateRow(
        configuration={name: settings[name] for name in varying if name in settings},
        registers=stages.registers,
        spills=sum((kernel.spill_store_bytes or 0) + (kernel.spill_load_bytes or 0) for kernel in kernels),
        smem=max((kernel.static_smem_bytes + kernel.dynamic_smem_bytes for kernel in kernels), default=None),
        occupancy=min((kernel.occupancy_percent for kernel in kernels), default=None),
        median_us=candidate.get("median_us"),
        status=status,
        kind=KINDS.get(status, "bad"),
        summary=str(candidate.get("summary", "")),
        chosen=bool(candidate.get("chosen")),
    )
