"""Draw docs/images/speed.svg from the raw samples in evals/results/h200/speed: `python docs/speed_chart.py [OUT]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "evals" / "results" / "h200" / "speed" / "speed.json"
FUNCTIONS = {
    "softmax": "softmax",
    "rmsnorm": "RMS norm",
    "layernorm": "layer norm",
    "crossentropy": "cross entropy",
    "gelu": "GELU",
}
SIZES = ("32768x1024", "32768x4096", "32768x8192", "16384x32768")
COLOURS = {"eager": "#c3c7cd", "torch.compile": "#8a94a3", "QuACK": "#e0a458", "cutesmith": "#2f7d4f"}


def bandwidth(point: dict[str, object], contender: str) -> float:
    """Bytes moved over the median time, in TB/s; 0 where there is no such kernel."""
    medians = point["medians_us"]
    assert isinstance(medians, dict)
    name = {"cutesmith": point["best"], "QuACK": "quack"}.get(contender, contender)
    return float(str(point["bytes"])) / medians[name] / 1e6 if name in medians else 0.0


def draw(out: Path) -> None:
    """Write the chart: one panel a function, one group of bars a size."""
    measured = json.loads(SAMPLES.read_text(encoding="utf-8"))
    points = {point["point"]: point for point in measured["points"]}
    plt.rcParams.update({"svg.hashsalt": "cutesmith", "font.size": 9, "svg.fonttype": "none"})
    figure, panels = plt.subplots(1, len(FUNCTIONS), figsize=(12, 3), sharey=True, layout="constrained")
    for panel, (function, title) in zip(panels, FUNCTIONS.items()):
        for place, (contender, colour) in enumerate(COLOURS.items()):
            heights = [bandwidth(points[f"{function}_{size}"], contender) for size in SIZES]
            panel.bar([x + 0.2 * place for x in range(len(SIZES))], heights, 0.19, color=colour, label=contender)
        panel.axhline(measured["copy_bytes_per_second"] / 1e12, color="black", linewidth=0.8, linestyle=":")
        panel.set_title(title, fontsize=10)
        panel.set_xticks([x + 0.3 for x in range(len(SIZES))], [size.partition("x")[2] for size in SIZES])
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("TB/s")
    figure.supxlabel("columns of bf16 (32768 rows; 16384 at 32768 columns); dotted: a large copy", fontsize=9)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(COLOURS), frameon=False)
    figure.savefig(out, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images" / "speed.svg")
