"""The report page: the generator's result and the kernel's source, rendered to one HTML file without outside resources.

Everything that comes from a kernel or a problem is text to the template and escaped by it (jinja2 autoescape).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cutesmith.errors import UnavailableError
from cutesmith.report.charts import best_baseline, roofline, time_chart
from cutesmith.report.highlight import highlight
from cutesmith.verdicts import VERIFIED, VERIFIED_BY_EMULATION

TEMPLATE = "report.html.j2"
KINDS = {VERIFIED: "good", VERIFIED_BY_EMULATION: "good", "compiled": "fair", "passed": "good", "skipped": "fair"}


def render_report(result: Mapping[str, Any], source: str = "") -> str:
    """The whole page for a `GenerateVerdict.to_dict()` (with `environment`, when known) and the kernel's source."""
    stages = {stage.get("stage", ""): stage for stage in result.get("stages") or ()}
    benchmark = stages.get("benchmark") or {}
    tried = list(result.get("tried") or ())
    first = tried[0].get("configuration") or {} if tried else {}
    varying = varying_settings([candidate.get("configuration") or {} for candidate in tried])
    template = environment().get_template(TEMPLATE)
    page: str = template.render(
        result=result,
        name=Path(str(result.get("problem") or "problem")).name,
        kind=KINDS.get(str(result.get("status")), "bad"),
        compiled=stages.get("compile") or {},
        verified=stages.get("verify") or {},
        benchmark=benchmark,
        speedups=benchmark.get("speedups") or {},
        findings=(stages.get("lint") or {}).get("findings") or (),
        facts=key_facts(result, stages),
        chart=time_chart(benchmark),
        roofline=roofline(benchmark),
        executed=was_executed(stages.get("verify") or {}),
        tried=[candidate_row(candidate, varying) for candidate in tried],
        common=[(key, value) for key, value in first.items() if key not in varying],
        kernels=device_kernels(stages.get("compile") or {}),
        environment=result.get("environment") or {},
        lines=highlight(source),
    )
    return page


def key_facts(result: Mapping[str, Any], stages: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The few numbers that a reader looks for first, as (label, value)."""
    benchmark, facts = stages.get("benchmark") or {}, []
    timings = benchmark.get("timings") or ()
    if timings and timings[0].get("median_us"):
        facts.append(("median time", f"{timings[0]['median_us']:,.1f} µs"))
    if best := best_baseline(benchmark):
        facts.append((f"against {best[0]}", f"{best[1]:.2f}×"))
    if benchmark.get("floor_percent"):
        facts.append(("of the measured floor", f"{benchmark['floor_percent']:.1f} %"))
    if result.get("pattern"):
        facts.append(("pattern", str(result["pattern"])))
    cases = (stages.get("verify") or {}).get("cases") or ()
    if cases:
        label = "cases right" if was_executed(stages["verify"]) else "cases launched, not executed"
        facts.append((label, f"{sum(bool(case['passed']) for case in cases)} of {len(cases)}"))
    if kernels := device_kernels(stages.get("compile") or {}):
        facts.append(("registers", str(max(kernel["registers"] for kernel in kernels))))
    return facts


def was_executed(verify: Mapping[str, Any]) -> bool:
    """Whether values were compared: a compile-only pass says nothing of them."""
    return verify.get("ran_on") not in (None, "compile")


def varying_settings(configurations: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings in which the configurations differ, in their order."""
    names = dict.fromkeys(name for configuration in configurations for name in configuration)
    return [name for name in names if len({str(c.get(name)) for c in configurations}) > 1]


def candidate_row(candidate: Mapping[str, Any], varying: Sequence[str]) -> dict[str, Any]:
    """What the table of configurations shows of one candidate: only the settings that differ from the others'."""
    settings = candidate.get("configuration") or {}
    kernels = device_kernels(candidate.get("compile") or {})
    return {
        "configuration": {name: settings[name] for name in varying if name in settings},
        "registers": most(kernels, "registers"),
        "spills": sum((k.get("spill_store_bytes") or 0) + (k.get("spill_load_bytes") or 0) for k in kernels),
        "smem": most(kernels, "static_smem_bytes", "dynamic_smem_bytes"),
        "occupancy": min((k["occupancy_percent"] for k in kernels), default=None),
        "median_us": candidate.get("median_us"),
        "status": str(candidate.get("status", "")),
        "kind": KINDS.get(str(candidate.get("status")), "bad"),
        "summary": str(candidate.get("summary", "")),
        "chosen": bool(candidate.get("chosen")),
    }


def device_kernels(compiled: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every device kernel of a compile verdict, on every architecture."""
    return [kernel for arch in compiled.get("archs") or () for kernel in arch.get("kernels") or ()]


def most(kernels: Sequence[Mapping[str, Any]], *names: str) -> int | None:
    """The largest sum of these fields over the kernels, None without kernels."""
    return max((sum(kernel.get(name) or 0 for name in names) for kernel in kernels), default=None)


def environment(*folders: Path) -> Any:
    """The jinja2 environment of all reports, with templates of other folders: autoescape, nothing undefined.

    Raises UnavailableError without jinja2.
    """
    try:
        import jinja2
    except ImportError as error:
        raise UnavailableError("the report needs jinja2", hint="python3 -m pip install jinja2") from error
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, Path(__file__).parent]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["number"] = _number
    templates.filters["kib"] = _kibibytes
    return templates


def _number(value: Any, digits: int = 3) -> str:
    """A number at `digits` significant digits, "–" for None."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}g}"


def _kibibytes(value: int | None) -> str:
    """Bytes as "12.5 KB" (1024), "–" for None."""
    if value is None:
        return "–"
    return f"{value / 1024:.4g} KB" if value >= 1024 else f"{value} B"
