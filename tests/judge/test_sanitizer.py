"""What is asked of compute-sanitizer, and how its answer is read; a script stands for the program."""

import sys

import pytest

from cutesmith.judge.sanitizer import check

FAULT = "========= Invalid __global__ read of size 4 bytes"


@pytest.fixture
def answering(tmp_path, monkeypatch):
    def install(code):
        program = tmp_path / "compute-sanitizer"
        program.write_text(f"#!{sys.executable}\nimport sys\nasked = sys.argv\n{code}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        return list(check(tmp_path / "kernel.py", tmp_path / "problem.py", timeout=60.0))

    return install


def test_allocations_are_padded_so_that_no_neighbour_hides_what_is_read_beyond_one(answering):
    memcheck, racecheck = answering(
        "padded = int(asked[asked.index('--padding') + 1]) if '--padding' in asked else 0\n"
        f"if padded: print({FAULT!r})\n"
        "sys.exit(int(asked[asked.index('--error-exitcode') + 1]) if padded else 0)"
    )
    assert (memcheck.passed, memcheck.rule) == (False, "O8") and FAULT.lstrip("= ") in memcheck.explanation
    assert racecheck.passed and racecheck.explanation == ""


def test_a_program_that_fails_itself_has_checked_nothing(answering):
    for case in answering("print('no such option'); sys.exit(3)"):
        assert case.passed and case.explanation == "not run: it ended with 3: no such option"
