"""Progress, printed to a stderr that is not a terminal."""

from __future__ import annotations

from cutesmith.commands._progress import Lines, progress_display


def test_a_stage_has_a_line_where_it_ends(capsys):
    with progress_display() as tell:
        for done in range(4):
            tell("kernels for sm_90a", done, 3)
    assert capsys.readouterr() == ("", "kernels for sm_90a: 3/3\n")


def test_a_stage_that_takes_long_has_lines_between(capsys):
    tell = Lines(seconds=0.0)
    for done in range(4):
        tell("compile", done, 3)
    assert capsys.readouterr().err.splitlines() == ["compile: 1/3", "compile: 2/3", "compile: 3/3"]


def test_nothing_is_shown_where_it_is_not_wanted(capsys):
    with progress_display(quiet=True) as tell:
        tell("compile", 3, 3, "all")
    assert capsys.readouterr() == ("", "")
