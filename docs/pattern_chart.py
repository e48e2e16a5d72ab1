"""Draw docs/images/patterns.svg from raw samples in evals/results: `python docs/pattern_chart.py [OUT]`."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "evals" / "results"
OURS, OTHERS = "#2f7d4f", "#8a94a3"


@dataclass(frozen=True)
class Row:
    """Cases of some studies in a file of `bench_patterns.py`, and the name there of what they are compared with."""

    title: str
    file: str
    studies: tuple[str, ...]
    beside: str
    said: str


COMPILED = "torch.compile"
EVERY = "h200/patterns/patterns.json"
ROWS = (
    Row("products, bf16", EVERY, ("llm", "majors"), "eager", "cuBLAS"),
    Row("products, float8 with row scales", EVERY, ("float8",), "eager", "cuBLAS"),
    Row("products, float32", EVERY, ("float32",), "eager", "cuBLAS, float32"),
    Row("feed-forward layers, fused", "h200/layers/patterns.json", ("layers",), COMPILED, "max-autotune"),
    Row("attention, forward", EVERY, ("attention",), "cuDNN", "cuDNN"),
    Row("convolutions", EVERY, ("convolutions", "points", "taps", "images"), "eager", "cuDNN"),
    Row("depthwise convolutions", EVERY, ("depthwise",), "eager", "cuDNN"),
    Row("functions of current models", "h200/patterns/models.json", ("models",), COMPILED, COMPILED),
    Row("gradients", "h200/patterns/gradients.json", ("gradients",), COMPILED, COMPILED),
    Row("functions not tuned for", "h200/patterns/ordinary.json", ("ordinary",), COMPILED, COMPILED),
    Row("KernelBench, level 1", "kernelbench/full_size/level1_h200.json", ("level1",), COMPILED, COMPILED),
    Row("KernelBench, level 2", "kernelbench/full_size/level2_h200.json", ("level2",), COMPILED, COMPILED),
    Row("column reductions, scans", EVERY, ("columns", "scans"), "copy", "a copy's rate"),
    Row("pooling, movement", EVERY, ("pooling", "moves"), "copy", "a copy's rate"),
)


def ratios(row: Row) -> Iterator[float]:
    """Of each case that both ran, the median of the other over that of our first choice."""
    for case in json.loads((RESULTS / row.file).read_text(encoding="utf-8"))["cases"]:
        medians = {name: statistics.median(found) for name, found in case.get("samples", {}).items()}
        first = next((name for name in case.get("kernels", ()) if name in medians), None)
        if case["study"] in row.studies and first and row.beside in medians:
            yield medians[row.beside] / medians[first]


def draw_row(axes: Axes, place: int, row: Row) -> None:
    """A dot a case, a bar at their geometric mean, and that number at the right."""
    found = list(ratios(row))
    mean = statistics.geometric_mean(found)
    axes.scatter(found, [place] * len(found), s=16, color=OURS, alpha=0.35, linewidths=0)
    axes.plot([mean, mean], [place - 0.32, place + 0.32], color=OURS, linewidth=2.2)
    axes.text(1.01, place, f"{mean:.2f}", transform=axes.get_yaxis_transform(), va="center", fontweight="bold")
    axes.text(1.06, place, f"{len(found)} cases", transform=axes.get_yaxis_transform(), va="center", color=OTHERS)


def draw(out: Path) -> None:
    """Write the chart: a line a family, its cases from slower to faster than what it is compared with."""
    plt.rcParams.update({"svg.hashsalt": "cutesmith", "font.size": 9, "svg.fonttype": "none"})
    figure, axes = plt.subplots(figsize=(11, 4.6), layout="constrained")
    axes.axvline(1, color="black", linewidth=0.8, linestyle=":")
    for place, row in enumerate(ROWS):
        draw_row(axes, place, row)
    axes.set_xscale("log", base=2)
    axes.set_xticks([0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32], ["⅛", "¼", "½", "1", "2", "4", "8", "16", "32"])
    axes.set_xlim(0.08, 48)
    axes.set_yticks(range(len(ROWS)), [f"{row.title}  ({row.said})" for row in ROWS])
    axes.invert_yaxis()
    axes.set_xlabel("times as fast as what stands in brackets; a dot a case, a bar the geometric mean")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.savefig(out, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images" / "patterns.svg")
