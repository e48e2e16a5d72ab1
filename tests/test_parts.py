"""What `--part` leaves to a run: every slow case is in one part, and tests of few cases are in all of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

MANY = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("case", range(7))
def test_many(case): pass

@pytest.mark.slow
@pytest.mark.parametrize("case", range(2))
def test_few(case): pass

@pytest.mark.parametrize("case", range(5))
def test_quick(case): pass
"""


def collected(folder: Path, part: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "--part", part]
    return subprocess.run([*command, str(folder)], capture_output=True, text=True, cwd=folder)


def test_each_slow_case_of_many_is_in_one_part(tmp_path):
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_cases.py").write_text(MANY)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow: slow\n")
    runs = [collected(tmp_path, f"{part}/3").stdout.splitlines() for part in (1, 2, 3)]
    many = [[line for line in run if "test_many" in line] for run in runs]
    assert sorted(line for run in many for line in run) == sorted(f"test_cases.py::test_many[{n}]" for n in range(7))
    assert list(map(len, many)) == [3, 2, 2]
    assert [sum("test_few" in line or "test_quick" in line for line in run) for run in runs] == [7, 7, 7]
    refused = collected(tmp_path, "4/3")
    assert refused.returncode == 4 and "write K/N with K from 1 to N" in refused.stderr
