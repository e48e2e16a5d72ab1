"""Plans in several files: what lies beside a plan is imported in its confined process, remembered, and nothing more."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from cutesmith.errors import ContractError
from cutesmith.runtime import TuningCache, autotune
from cutesmith.runtime.neighbours import NeighbourFinder, imported_sources, neighbours_of
from cutesmith.runtime.trials import TIMED
from cutesmith.sandbox.confinement import landlock_abi

SCALE = Path(__file__).parent / "plans" / "scale.py"
PLAN = """
import errno
from parts import doubled
import sizes

def plan_fn(x):
    for path in (FOLDER + "/notes.txt", FOLDER + "/data/more.py", FOLDER):
        try:
            import os
            os.listdir(path) if path == FOLDER else open(path)
        except OSError as error:
            assert error.errno == errno.EACCES, error
        else:
            raise ValueError(f"{path} could be read")
    return doubled.plan_fn(x, (doubled.Tiling(threads=sizes.THREADS, tile=(sizes.THREADS,)),))
"""


@pytest.fixture
def plan(write_file, tmp_path) -> Path:
    """A plan that imports a module and a package beside it; a text, a folder and a link lie there too."""
    write_file("", "plans/parts/__init__.py")
    shutil.copy(SCALE, tmp_path / "plans" / "parts" / "doubled.py")
    write_file("THREADS = 64\n", "plans/sizes.py")
    write_file("keep out", "plans/notes.txt")
    write_file("SECRET = 1\n", "plans/data/more.py")
    (tmp_path / "plans" / "linked.py").symlink_to(tmp_path / "plans" / "data" / "more.py")
    return write_file(f"FOLDER = {str(tmp_path / 'plans')!r}\n{PLAN}", "plans/plan.py")


@pytest.mark.skipif(landlock_abi() == 0, reason="this system confines no reads")
def test_a_plan_imports_what_lies_beside_it_and_reads_nothing_else(plan, tmp_path):
    cache = TuningCache(tmp_path / "tuning")
    first = autotune(plan, [torch.rand(256)], on="emulator", cache=cache, jobs=1)
    assert [(trial.state, trial.tiling.threads) for trial in first.trials] == [(TIMED, 64)], first.trials
    assert autotune(plan, [torch.rand(256)], on="emulator", cache=cache, jobs=1).cached
    (plan.parent / "sizes.py").write_text("THREADS = 32\n")
    changed = autotune(plan, [torch.rand(256)], on="emulator", cache=cache, jobs=1)
    assert not changed.cached and changed.best.tiling.threads == 32


def test_modules_and_packages_are_neighbours_and_nothing_else_is(plan, write_file):
    write_file("", "plans/random.py")
    write_file("", "plans/not-a-name.py")
    assert neighbours_of(plan) == {"parts": plan.parent / "parts", "sizes": plan.parent / "sizes.py"}


def test_the_finder_leaves_other_names_alone(plan):
    finder = NeighbourFinder(neighbours_of(plan))
    assert finder.find_spec("sizes").origin == str(plan.parent / "sizes.py")
    assert finder.find_spec("parts").submodule_search_locations == [str(plan.parent / "parts")]
    assert finder.find_spec("parts.doubled") is finder.find_spec("linked") is finder.find_spec("torch") is None


def test_sources_are_followed_through_what_is_imported(plan, write_file):
    assert imported_sources(plan) == ["", SCALE.read_text(), "THREADS = 64\n"]
    write_file("import parts\nfrom deeper import N\n", "plans/sizes.py")
    write_file("import sizes\nN = 3\n", "plans/deeper.py")
    assert imported_sources(plan)[0] == "import sizes\nN = 3\n" and len(imported_sources(plan)) == 4
    assert imported_sources(SCALE) == []


def test_a_neighbour_that_is_no_python_is_told(plan):
    (plan.parent / "sizes.py").write_bytes(b"\0")
    with pytest.raises(ContractError, match="sizes.py is a binary file"):
        imported_sources(plan)
