"""`cutesmith eval report | compare | leaderboard`: files, exit codes, what is refused and what is only said."""

from __future__ import annotations

import csv
import io
import json

import pytest

from cutesmith.cli import main
from cutesmith.evals.reading import PlannedTask
from cutesmith.report.runs.tables import ScoredRun, csv_text, markdown
from tests.evals.sample_attempts import H200, attempt, noisy, run, unjudged, write_run, wrong


@pytest.fixture
def two(tmp_path):
    first = [noisy(f"t{n}", 1.5, n, key=f"1{n}") for n in range(6)] + [wrong("lost"), attempt("gone", 2.0)]
    second = [noisy(f"t{n}", 1.5 + n / 2, n, key=f"2{n}") for n in range(6)] + [attempt("lost", 2.0), unjudged("gone")]
    settings = {"judge": {"rounds": 10}}
    return (
        write_run(tmp_path / "one", first, suite="s", settings=settings),
        write_run(tmp_path / "two", second, suite="s", settings={"judge": {"rounds": 20}}),
    )


def test_a_report_is_a_page_with_markdown_and_csv_beside_it(two, capsys):
    assert main(["eval", "report", str(two[0])]) == 0
    assert (
        "against eager" in (said := capsys.readouterr().out) and "8 tasks: 7 correct and timed, 1 not correct" in said
    )
    assert {path.name for path in two[0].glob("report.*")} == {"report.html", "report.md", "report.csv"}
    assert "| eager | 8 | 87.5 % [" in (two[0] / "report.md").read_text(encoding="utf-8")
    assert main(["eval", "report", *map(str, two), "--out", str(two[0] / "sub" / "both.html"), "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert [scores["name"] for scores in verdict["runs"]] == ["one", "two"]
    assert verdict["runs"][1]["all"][0]["against"]["eager"]["fast"]["1.0"]["value"] == 0.875


def test_csv_holds_every_kernel_unrounded_and_no_formula():
    made = run([noisy("a", 1.7, 1), wrong("b", summary="=1+1\n|x"), attempt("c", sample=2)], planned="abcd")
    rows = list(csv.DictReader(io.StringIO(csv_text([made]))))
    assert [(row["task"], row["outcome"], row["sample"]) for row in rows] == [
        ("a", "timed", "0"),
        ("b", "failed", "0"),
        ("c", "untimed", "2"),
        ("d", "not attempted", ""),
    ]
    assert float(rows[0]["speedup_eager"]) == made.tasks[0].speedups("eager")[0]
    assert rows[1]["summary"] == "'=1+1 |x" and rows[1]["speedup_eager"] == "" and rows[0]["samples"] == "40"


def test_markdown_is_not_broken_by_what_it_quotes():
    made = run([attempt("a", 2.0, tags=("x|y</td>\n# z",))], name="a|b<script>")
    text = markdown([ScoredRun(made)])
    assert "<script>" not in text and "| x&#124;y&#60;/td&#62; # z | 1 |" in text


def test_the_tasks_that_no_library_computes_stand_beside_its_denominator():
    attempts = [attempt("a", {"eager": 2.0, "library": 1.2}), wrong("b"), wrong("c")]
    known = [PlannedTask(id=task, libraries=("quack.py:f",) if task in "ab" else ()) for task in "abc"]
    said, unsaid = (markdown([ScoredRun(run(attempts, tasks))]) for tasks in (known, "abc"))
    assert "| library | 2 (1 without it) | 50 % [" in said and "run.json does not say" not in said
    assert "| library | 3 | 33.3 % [" in unsaid and "- note: run.json does not say which tasks a library" in unsaid


def test_where_nothing_was_solved_the_cost_of_all_is_named():
    compiled = wrong("a", exit_code=0, status="compiled", ran_on="compile", seconds={"check": 90.0})
    text = markdown([ScoredRun(run([compiled]))])
    assert "Nothing was solved; all attempts together took 1.5 min." in text
    assert "1 tasks: 1 without a verdict (count as not solved)" in text and "correct and timed" not in text


def test_a_comparison_says_what_flipped_and_warns_of_other_settings(two, capsys):
    assert main(["eval", "compare", *map(str, two)]) == 0
    out, err = capsys.readouterr()
    assert "gained  lost" in out and "lost    gone" in out and "B: verify: unavailable" in out
    assert "faster  t5: 1.5" in out and "1 gained, 1 lost" in out and "faster  t0" not in out
    assert err == "warning: setting judge rounds differs: 10 | 20\n"


def test_other_devices_are_refused_unless_it_is_asked_for(two, tmp_path, capsys):
    other = H200.model_copy(update={"device": "NVIDIA H100"})
    there = write_run(tmp_path / "there", [attempt("t0", 1.0, machine=other)])
    assert main(["eval", "compare", str(two[0]), str(there)]) == 2
    assert "NVIDIA H200 and NVIDIA H100" in capsys.readouterr().err
    assert main(["eval", "compare", str(two[0]), str(there), "--across-devices", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["comparison"]["other_device"] is True


def test_a_leaderboard_ranks_and_marks_ties(two, tmp_path, capsys):
    assert main(["eval", "leaderboard", *map(str, two), "--baseline", "eager"]) == 0
    out = capsys.readouterr().out
    assert "## s on NVIDIA H200: 8 tasks, against eager" in out and "| 1 | one |" in out and "| 1= | two |" in out
    page = tmp_path / "board.html"
    assert main(["eval", "leaderboard", *map(str, two), "--out", str(page)]) == 0
    assert "<td>1=</td>" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "nowhere"], "holds no results.jsonl"),
        (["report", "ONE", "--out", "page.txt"], "is not a page"),
        (["compare", "ONE", "nowhere"], "holds no results.jsonl"),
        (["compare", "ONE", "ONE", "--noise", "2"], "is not a share"),
        (["leaderboard", "ONE", "--out", "board.pdf"], "its form is not known"),
        (["leaderboard"], "required"),
        (["report", "ONE", "--out", "ONE/results.jsonl/page.html"], "cannot be written"),
        (["leaderboard", "ONE", "--out", "ONE/results.jsonl/board.html"], "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_code_2(two, capsys, arguments, said):
    assert main(["eval", *(word.replace("ONE", str(two[0])) for word in arguments)]) == 2
    assert said in capsys.readouterr().err


def test_a_broken_run_json_is_named(two, capsys):
    (two[0] / "run.json").write_text("{", encoding="utf-8")
    assert main(["eval", "report", str(two[0])]) == 2
    assert "run.json cannot be read" in capsys.readouterr().err
