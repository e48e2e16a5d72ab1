"""Runs judged by another tolerance stand apart and say so; whatever verdicts say, what is printed is one line each."""

from __future__ import annotations

from cutesmith.cli import main
from cutesmith.evals.records import Machine
from cutesmith.evals.scores.comparison import differences
from cutesmith.evals.scores.ranking import rank
from cutesmith.report.runs.tables import remarks
from tests.evals.sample_attempts import attempt, run, write_run, wrong

OWN, STRICT = {"tolerance": ""}, {"tolerance": "strict"}
LONG = "first line\nsecond \x1b[31mline\r\t" + "x" * 900


def test_flips_take_one_line_for_each_side_however_long_a_summary_is(tmp_path, capsys):
    name = "a\nb\x1b[2J"
    one = write_run(tmp_path / "one", [attempt("t"), wrong(name, summary=LONG)], suite="s")
    two = write_run(tmp_path / "two", [wrong("t", summary=LONG), attempt(name)], suite="s")
    assert main(["eval", "compare", str(one), str(two)]) == 0
    printed = capsys.readouterr().out.splitlines()
    flips = [line for line in printed if line.startswith(("gained", "lost", "          A", "          B"))]
    assert len(flips) == 6 and all(line.isprintable() and len(line) <= 150 for line in printed)
    assert any(line.startswith("          A: verify: wrong_result: first line second") for line in flips)


def test_a_run_by_another_tolerance_has_a_table_of_its_own():
    runs = [run([attempt("a", 2.0)], name=name, settings=by) for name, by in (("x", OWN), ("y", STRICT), ("z", OWN))]
    tables = {table.title: [standing.run.name for standing in table.standings] for table in rank(runs, "eager")}
    assert sorted(map(sorted, tables.values())) == [["x", "z"], ["y"]]
    assert [title.endswith(", tolerance strict") for title, names in tables.items() if "y" in names] == [True]


def test_comparing_it_with_the_tasks_own_is_warned_of():
    before, after = run([attempt("a")], settings=OWN), run([attempt("a")], settings=STRICT)
    assert differences(before, after) == {"setting tolerance": ("each task's own", "strict")}
    assert not differences(before, run([attempt("a")], settings=OWN)) and not differences(run([attempt("a")]), after)
    assert sum("judged by the tolerance strict" in remark for remark in remarks(after)) == 1
    assert not any("tolerance" in remark for remark in remarks(before))


def test_the_emulated_gpu_is_a_device():
    emulated = run([attempt("a", ran_on="emulator", machine=Machine(torch="2"))])
    assert emulated.devices == "the emulated GPU" and rank([emulated])[0].title == "s on the emulated GPU"
    assert run([wrong("a", ran_on="", machine=Machine(torch="2"))]).devices == "no device named"
