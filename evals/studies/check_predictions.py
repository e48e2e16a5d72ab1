"""How near the model of sm_90a's products comes to the times that were measured, without a GPU.

    python evals/studies/check_predictions.py

For each study and run in the committed samples: by how much the configuration that is predicted to be the fastest of
those that were measured is slower than the best of them (geometric mean, and the cases of more than 5 %), and the root
mean square of the logarithm of measured over predicted. The prediction is for an H200; the memory of an H100 is slower.
"""

from __future__ import annotations

import ast
import json
import math
import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import convolution_cases  # noqa: E402
import pattern_cases  # noqa: E402
import torch  # noqa: E402
from pattern_cases import Case  # noqa: E402
from races import Tensor  # noqa: E402

from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration  # noqa: E402
from cutesmith.patterns.contraction.plan import ContractionPlan  # noqa: E402
from cutesmith.patterns.match import whole_or_cut  # noqa: E402
from cutesmith.patterns.tracing.trace import trace_function  # noqa: E402

RESULTS = ROOT / "evals" / "results"
STUDIES = {
    **{name: getattr(pattern_cases, name) for name in "llm epilogues float8 blocks kernelbench unaligned".split()},
    **{name: getattr(convolution_cases, name) for name in "points taps images".split()},
}
MOST_LOST = 1.05


@dataclass(frozen=True)
class Race:
    """One case of a run: the median of each configuration in microseconds."""

    run: str
    study: str
    case: str
    times: dict[HopperConfiguration, float]


def races() -> Iterator[Race]:
    """All in the committed samples that have more than one configuration."""
    found = json.loads((RESULTS / "h200" / "gemm" / "all_configurations.json").read_text())
    for case in found["cases"]:
        settings = {name: dict(given) for name, given in case["configurations"].items() if name in case["samples"]}
        times = {
            HopperConfiguration(**{k: v for k, v in given.items() if k != "predicted_us"}): _median(case, name)
            for name, given in settings.items()
        }
        yield Race("h200/gemm", "llm", case["case"].removeprefix("gemm_").replace("x", " "), times)
    for file in sorted((RESULTS / "h100" / "table").glob("**/patterns.json")):
        for case in json.loads(file.read_text())["cases"]:
            names = [name for name in case.get("kernels", ()) if name in case["samples"] and name.startswith("(")]
            values = {name: ast.literal_eval(name) for name in names}
            times = {HopperConfiguration(*v): _median(case, name) for name, v in values.items() if len(v) > 12}
            if len(times) > 1:
                yield Race(f"h100/{file.parent.name}", case["study"], case["case"], times)


def _median(case: dict[str, Any], name: str) -> float:
    return statistics.median(case["samples"][name])


def plan_of(case: Case) -> Any:
    """The plan of a case's function, traced without memory."""
    with torch.device("meta"):
        given = [argument.make("cpu") if isinstance(argument, Tensor) else argument for argument in case.arguments]
    return whole_or_cut(trace_function(case.function, given))


def main() -> int:
    """Print a line for each study of a run."""
    cases = {(study, case.name): case for study, of_study in STUDIES.items() for case in of_study()}
    plans: dict[tuple[str, str], Any] = {}
    lines: dict[tuple[str, str], list[tuple[float, str, list[float]]]] = {}
    for race in races():
        key = (race.study, race.case)
        if key not in cases:
            continue
        plan = plans[key] = plans.get(key) or plan_of(cases[key])
        if not isinstance(plan, ContractionPlan):
            continue
        predicted = {c: plan.seconds(c) * 1e6 for c in race.times}
        lost = race.times[min(predicted, key=predicted.__getitem__)] / min(race.times.values())
        errors = [math.log(race.times[c] / predicted[c]) for c in race.times]
        lines.setdefault((race.run, race.study), []).append((lost, race.case, errors))
    for (run, study), found in lines.items():
        mean = statistics.geometric_mean([lost for lost, _, _ in found])
        error = math.sqrt(statistics.fmean([e * e for _, _, errors in found for e in errors]))
        far = ", ".join(f"{case} {lost:.2f}" for lost, case, _ in found if lost > MOST_LOST)
        print(f"{run} {study}: {len(found)} cases, first over best {mean:.3f}, log error {error:.2f}; {far}")
    every = [lost for found in lines.values() for lost, _, _ in found]
    print(f"all: {len(every)} cases, first over best {statistics.geometric_mean(every):.4f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
