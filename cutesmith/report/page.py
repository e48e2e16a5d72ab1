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

TEMPLATE = "report.html.j2"
KINDS = {"verified": "good", "compiled": "fair", "passed": "good", "skipped": "fair"}


def render_report(result: Mapping[str, Any], source: str = "") -> str:
    """The whole page for a `GenerateVerdict.to_dict()` (with `environment`, when known) and the kernel's source."""
    stages = {stage.get("stage", ""): stage for stage in result.get("stages") or ()}
    benchmark = stages.get("benchmark") or {}
    template = _environment().get_template(TEMPLATE)
    return template.render(
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
        tried=[candidate_row(candidate) for candidate in result.get("tried") or ()],
        kernels=_kernels(stages.get("compile") or {}),
        environment=result.get("environment") or {},
        lines=highlight(source),
    )


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
        facts.append(("cases right", f"{sum(bool(case['passed']) for case in cases)} of {len(cases)}"))
    if kernels := _kernels(stages.get("compile") or {}):
        facts.append(("registers", str(max(kernel["registers"] for kernel in kernels))))
    return facts


def candidate_row(candidate: Mapping[str, Any]) -> dict[str, Any]:
    """What the table of configurations shows of one candidate."""
    kernels = _kernels(candidate.get("compile") or {})
    return {
        "configuration": candidate.get("configuration") or {},
        "registers": _most(kernels, "registers"),
        "spills": sum((k.get("spill_store_bytes") or 0) + (k.get("spill_load_bytes") or 0) for k in kernels),
        "smem": _most(kernels, "static_smem_bytes", "dynamic_smem_bytes"),
        "occupancy": min((k["occupancy_percent"] for k in kernels), default=None),
        "median_us": candidate.get("median_us"),
        "status": str(candidate.get("status", "")),
        "kind": KINDS.get(str(candidate.get("status")), "bad"),
        "summary": str(candidate.get("summary", "")),
        "chosen": bool(candidate.get("chosen")),
    }


def _kernels(compiled: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [kernel for arch in compiled.get("archs") or () for kernel in arch.get("kernels") or ()]


def _most(kernels: Sequence[Mapping[str, Any]], *names: str) -> int | None:
    return max((sum(kernel.get(name) or 0 for name in names) for kernel in kernels), default=None)


def _environment() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise UnavailableError("the report needs jinja2", hint="python3 -m pip install jinja2") from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = _number
    environment.filters["kib"] = _kibibytes
    return environment


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
