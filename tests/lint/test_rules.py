"""Every rule finds its own bad example and leaves its good one alone; suppression; what is not readable Python."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cutesmith.commands import lint
from cutesmith.lint import RULES, lint_file
from cutesmith.verdicts import ExitCode

APART = {"CS002"}  # needs a machine without the DSL: tests/lint/test_symbols.py
COMPANIONS = {"CS408": {"CS505"}, "CS422": {"CS425"}}  # bad examples that break a second rule by their nature
PRELUDE = "import torch\nimport cutlass\nimport cutlass.cute as cute\nfrom cutlass.cute.runtime import from_dlpack\n"


def rules_of(path: Path) -> set[str]:
    return {finding.rule for finding in lint_file(path).findings}


@pytest.mark.parametrize("name", sorted(RULES.keys() - APART))
def test_a_rule_finds_its_bad_example_only(name, write_file):
    bad = rules_of(write_file(RULES[name].example("bad"), "bad.py"))
    good = rules_of(write_file(RULES[name].example("good"), "good.py"))
    assert name in bad
    assert name not in good
    assert bad - {name, "CS501"} <= COMPANIONS.get(name, set()), "an example shows one thing"
    assert good <= {"CS501"}


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_the_table_is_complete(rule):
    assert rule.severity in ("error", "warning", "note")
    assert rule.title and rule.why.endswith((".", "'")) and rule.fix
    assert rule.id == rule.id.upper() and RULES[rule.id] is rule


def test_errors_fail_and_warnings_pass(write_file):
    error = lint_file(write_file(RULES["CS101"].example("bad")))
    assert error.exit_code == ExitCode.LINT and not error.passed
    warning = lint_file(write_file(RULES["CS103"].example("bad")))
    assert warning.exit_code == ExitCode.PASSED and "1 warning" in warning.summary


def test_a_comment_suppresses_a_rule_on_its_line(write_file):
    line = "x = cute.make_fragment(8, cutlass.Float32)"
    found = rules_of(write_file(f"{PRELUDE}{line}\n"))
    assert "CS101" in found
    assert "CS101" not in rules_of(write_file(f"{PRELUDE}{line}  # cutesmith: ignore[CS101]\n"))
    assert "CS101" not in rules_of(write_file(f"{PRELUDE}{line}  # cutesmith: ignore[CS301, cs101] reason\n"))
    assert "CS101" not in rules_of(write_file(f"{PRELUDE}{line}  # cutesmith: ignore\n"))
    assert "CS101" in rules_of(write_file(f"{PRELUDE}{line}  # cutesmith: ignore[CS301]\n"))
    assert "CS101" in rules_of(write_file(f'{PRELUDE}{line}; y = "# cutesmith: ignore[CS101]"\n'))


def test_the_file_is_never_run(write_file, tmp_path):
    marker = tmp_path / "ran"
    lint_file(write_file(f"open({str(marker)!r}, 'w').close()\nimport cutlass\nraise SystemExit(3)\n"))
    assert not marker.exists()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"def kernel_fn(x:\n    return x\n", "line"),
        (b"\x7fELF\x00\x01\x02" * 100, "binary"),
        (b"x = '\xff\xfe\xfa'\n", "UTF-8"),
        (b"# " + b"x" * 10_000_000, "bytes"),
        (b"(" * 5000, "kernel.py"),
    ],
    ids=["syntax", "binary", "encoding", "10MB", "nesting"],
)
def test_what_is_no_python_is_a_usage_error(content, expected, tmp_path):
    path = tmp_path / "kernel.py"
    path.write_bytes(content)
    verdict = lint_file(path)
    assert verdict.exit_code == ExitCode.USAGE
    assert expected in verdict.summary and "\n" not in verdict.summary


def test_a_missing_file_and_a_folder_are_usage_errors(tmp_path):
    assert lint_file(tmp_path / "none.py").exit_code == ExitCode.USAGE
    assert lint_file(tmp_path).exit_code == ExitCode.USAGE
    os.mkfifo(tmp_path / "pipe.py")
    assert lint_file(tmp_path / "pipe.py").exit_code == ExitCode.USAGE


def test_a_syntax_error_says_where(write_file):
    (finding,) = lint_file(write_file("x = 1\nif x\n    y = 2\n")).findings
    assert (finding.rule, finding.line) == ("CS001", 2)


def test_an_architecture_is_taken_and_changes_nothing(write_file, capsys):
    path = str(write_file("x = 1\n"))
    told = []
    for words in ([path], [path, "--arch", "sm_90a"]):
        assert lint.main(words) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]


def test_an_empty_file_passes(write_file):
    assert lint_file(write_file("")).exit_code == ExitCode.PASSED
