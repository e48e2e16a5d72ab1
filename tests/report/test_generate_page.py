"""The report shows every stage, escapes whatever a kernel says, and loads nothing from outside."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cutesmith.report.charts import roofline, round_steps, time_chart
from cutesmith.report.generate_page import candidate_row, render_report, varying_settings
from cutesmith.report.highlight import highlight
from cutesmith.report.stages import Stages
from cutesmith.verdicts import ExitCode, GenerateVerdict
from tests.report import sample
from tests.report.elements import Elements


@pytest.fixture(scope="module")
def page() -> str:
    return render_report(sample.result(), sample.ENVIRONMENT, sample.SOURCE)


def test_hostile_text_stays_text(page: str) -> None:
    elements = Elements(page)
    assert not elements.open
    names = {tag for tag, _ in elements.tags}
    assert not names & {"script", "img", "iframe", "link", "object", "embed", "a", "base", "form"}
    assert not [name for _, attributes in elements.tags for name in attributes if name.startswith("on")]
    assert "".join(elements.text).count(sample.HOSTILE) >= 5


def test_nothing_is_loaded_from_outside(page: str) -> None:
    for _, attributes in Elements(page).tags:
        assert not attributes.keys() & {"src", "href", "xlink:href", "data", "action"}
    assert "http" not in page.replace("http-equiv", "") and "url(" not in page and "@import" not in page


def test_every_stage_is_shown(page: str) -> None:
    text = re.sub(r"\s+", " ", "".join(Elements(page).text))
    for expected in (
        "131.2 µs",
        "torch.compile",
        "1.02×",
        "95.2 %",
        "Configurations tried",
        "threads=256",
        "4 of 4",
        "rows_per_block=1",
    ):
        assert expected in text
    for expected in ("sm_90a", "128 / 128 bit", "K104", "NVIDIA H200", "wrong_result", "FLOP/byte", "4.27 TB/s"):
        assert expected in text
    assert "prefers-color-scheme: dark" in page and 'name="viewport"' in page


def test_source_listing_keeps_every_line(page: str) -> None:
    listed = re.findall(r"<li>(.*?)</li>", page, re.DOTALL)
    parsed = ["".join(Elements(line).text) for line in listed]
    assert parsed == sample.SOURCE.splitlines()


def test_compiled_only_and_empty_results_render() -> None:
    compiled = sample.result(state="compiled", stages=(), tried=())
    assert "compiled" in render_report(compiled, {}, "x = 1\n")
    nothing = GenerateVerdict(exit_code=ExitCode.USAGE, summary="no pattern", problem="p.py", unmatched="aten.mm <b>")
    page = render_report(nothing, {})
    assert "aten.mm &lt;b&gt;" in page and "Configurations tried" not in page


def test_a_compile_only_pass_is_never_shown_as_right() -> None:
    result = sample.result()
    verify = next(stage for stage in result.stages if stage["stage"] == "verify")
    cases = [{**case, "outputs": [], "outcome": "recorded"} for case in verify["cases"]]
    verify |= {"ran_on": "compile", "status": "compiled", "cases": cases}
    page = render_report(result, {})
    assert "not executed" in page and "no value was compared" in page
    assert Stages.read({stage["stage"]: stage for stage in result.stages}).counted == (
        "cases launched, not executed",
        f"{len(cases)} of {len(cases)}",
    )
    assert ">right<" not in page and "cases right" not in page and "Checked against" not in page


def test_configurations_show_only_what_differs() -> None:
    settings = [{"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}]
    assert varying_settings(settings) == ["b", "c"]
    assert candidate_row({"configuration": settings[0]}, ["b", "c"]).configuration == {"b": 2}


def test_failed_case_shows_its_problem() -> None:
    result = sample.result()
    verify = next(stage for stage in result.stages if stage["stage"] == "verify")
    verify["cases"][1] = {**verify["cases"][1], "passed": False, "problem": "17 of 33000 elements differ", "rule": "O9"}
    page = render_report(result, {})
    assert "17 of 33000 elements differ" in page and "O9" in page and "3 of 4" in page


def test_missing_numbers_are_dashes() -> None:
    result = sample.result()
    benchmark = next(stage for stage in result.stages if stage["stage"] == "benchmark")
    benchmark["timings"][1] |= {"median_us": None, "q1_us": None, "q3_us": None, "host_us": None, "samples_us": []}
    benchmark["timings"][1]["error"] = "eager raised <i>OutOfMemory</i>"
    verify = next(stage for stage in result.stages if stage["stage"] == "verify")
    verify["cases"][0]["outputs"][0] |= {"max_abs": None, "max_rel": None, "max_ulp": None}
    page = render_report(result, {})
    assert "&lt;i&gt;OutOfMemory&lt;/i&gt;" in page and "–" in page


def test_time_chart_scales_bars_and_floor() -> None:
    chart = time_chart(sample.benchmark())
    assert chart is not None and [bar.ours for bar in chart.bars] == [True, False, False, False]
    ratio = chart.bars[1].width / chart.bars[0].width
    assert ratio == pytest.approx(418.0 / 131.2)
    assert chart.floor is not None and chart.left < chart.floor < chart.left + chart.bars[0].width
    assert all(len(bar.samples) <= 60 for bar in chart.bars)
    assert time_chart(replace(sample.benchmark(), timings=())) is None


def test_roofline_points_stay_under_the_roof() -> None:
    figure = roofline(sample.benchmark())
    assert figure is not None
    x0, y0, x1, y1 = figure.roof
    for point in figure.points:
        assert figure.left <= point.x <= figure.width and 0 <= point.y <= figure.bottom
        assert point.y >= y0 + (point.x - x0) / (x1 - x0) * (y1 - y0)  # svg: down is slower
    assert roofline(replace(sample.benchmark(), copy_bytes_per_second=None)) is None


@pytest.mark.parametrize(("flops", "bound"), [(4 * 10**12, "products"), (10**9, "bytes")])
def test_the_second_roof_is_level_and_meets_the_first(flops: int, bound: str) -> None:
    median = 1e6 * max(flops / 7e14, 536_870_912 / 4e12)
    timing = replace(sample.benchmark().timings[0], median_us=median, q1_us=median, q3_us=median)
    changes = {"algorithmic_flops": flops, "matmul_flops_per_second": 8e14, "timings": (timing,)}
    benchmark = replace(sample.benchmark(), **changes)
    figure = roofline(benchmark)
    assert figure is not None and figure.ceiling is not None
    x1, y1, x2, y2 = figure.ceiling
    assert (x1, y1) == pytest.approx(figure.roof[2:]) and y1 == y2 and x1 < x2
    (point,) = figure.points
    assert (point.x > x1) is (bound == "products") and point.y > y1
    page = render_report(sample.result(stages=(*sample.result().stages[:3], benchmark.to_dict())), {})
    assert "a large matrix product 800 TFLOP/s" in page


def test_without_products_there_is_one_roof() -> None:
    figure = roofline(sample.benchmark())
    assert figure is not None and figure.ceiling is None and figure.rate == ""


@pytest.mark.parametrize("most", [0.7, 1.0, 3.3, 99.0, 12345.0])
def test_round_steps_are_few_and_within(most: float) -> None:
    steps = round_steps(most)
    assert steps[0] == 0 and steps[-1] <= most * (1 + 1e-9) and 3 <= len(steps) <= 7


def test_best_baseline_is_the_one_hardest_to_beat() -> None:
    speedups = {"eager": 3.0, "compiled": 1.1, "broken": None}
    assert Stages(benchmark=replace(sample.benchmark(), speedups=speedups)).best_baseline == ("compiled", 1.1)
    assert Stages().best_baseline is None


@pytest.mark.parametrize("source", ['x = """a\nb', "def f(:\n  pass\n", "\tx\n  y\n", "", "\x00", "a = 'é' # ü\n"])
def test_highlight_never_loses_text(source: str) -> None:
    assert ["".join(span.text for span in line) for line in highlight(source)] == source.splitlines()


def test_highlight_classifies() -> None:
    kinds = {span.text: span.kind for line in highlight("def f(x):\n    return 0x1 # c\n") for span in line}
    assert (kinds["def"], kinds["f"], kinds["0x1"], kinds["# c"]) == ("keyword", "name", "number", "comment")
