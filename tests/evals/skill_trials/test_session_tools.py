"""A script of a session is ended with all that it started when the session is interrupted."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import anyio
import pytest

from cutesmith.evals.skill_trials import forms
from cutesmith.evals.skill_trials.expectations.session_tools import run_script


@pytest.mark.timeout(120)
def test_a_cancelled_script_is_ended_at_once(tmp_path):
    shutil.copy(forms.folder() / "files" / "row_sum" / "kernel.py", tmp_path)

    async def interrupted() -> float:
        with anyio.move_on_after(2.0) as scope:
            await run_script("verify_kernel.py", ["kernel.py", "--seeds", "50"], tmp_path)  # takes minutes
        assert scope.cancelled_caught
        return anyio.current_time() - scope.deadline

    assert anyio.run(interrupted) < 5
    assert [place for place in Path("/proc").glob("[0-9]*/cwd") if _leads_to(place, tmp_path)] == []


def _leads_to(place: Path, folder: Path) -> bool:
    with contextlib.suppress(OSError):  # it ended just now
        return place.readlink() == folder
    return False


def test_what_a_script_prints_and_its_exit_code_come_back(tmp_path):
    code, text = anyio.run(run_script, "lint_kernel.py", ["none.py"], tmp_path)
    assert code == 2 and "none.py: no such file" in text
