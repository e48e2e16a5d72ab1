"""`load_suite`: a suite of ours, KernelBench, a folder of problem files or one file; `tolerance_of` a task.

A checkout of KernelBench as tasks: `KernelBench/level1/19_ReLU.py` is "level1/19_ReLU". No copy of it is kept here.
Its 250 problems are levels 1 to 3. Level 4 is left out: those 20 files fetch whole models from the Hugging Face hub,
and a worker has no network.
KernelBench: Ouyang et al. 2025, https://github.com/ScalingIntelligence/KernelBench.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from cutesmith import resources
from cutesmith.errors import UsageError
from cutesmith.evals.records import Suite, Task
from cutesmith.evals.suites.libraries import libraries_of
from cutesmith.evals.suites.metadata import read_task
from cutesmith.unicode import encodable

LEVELS = ("level1", "level2", "level3", "level4")
KERNELBENCH = "kernelbench"
SUITE_NAMES = ("core", *LEVELS, "speed", KERNELBENCH)
FOLDERS: dict[str, tuple[str, ...]] = {"core": LEVELS, "speed": ("speed",), **{name: (name,) for name in LEVELS}}
Ids = Iterable[tuple[str, Path]]
CHECKOUT = "KernelBench"
GET = "git clone https://github.com/ScalingIntelligence/KernelBench, then --path KernelBench"
TOLERANCES = ("strict", KERNELBENCH)
KERNELBENCH_FULL, KERNELBENCH_HALF = 1e-4, 1e-2
"""rtol = atol of fp32, and of fp16 and bf16: `get_tolerance_for_precision` in KernelBench's src/kernelbench/eval.py."""
HALVES = frozenset({"fp16", "bf16"})


def load_suite(
    name_or_path: str | Path,
    *,
    path: str | Path | None = None,
    ids: Sequence[str] = (),
    levels: Collection[int] = (),
    tags: Collection[str] = (),
    libraries: str | Path | None = None,
) -> Suite:
    """A suite's tasks, read off their files without running them, in the order of their ids (numbers as numbers).

    `name_or_path`: one of `SUITE_NAMES`, a folder, or a file; `path` is KernelBench's checkout. `ids` keeps tasks by
    id, last part of the id, KernelBench's number or a pattern ("level2/*norm*"), `levels` those of a level, `tags`
    those that have all of them. `libraries` is a folder of library functions by task; our own suites bring theirs.
    Raises UsageError for an unknown suite or id, or when nothing is left,
    ContractError for a broken file, UnavailableError where our own tasks are not installed.
    """
    if path is not None and str(name_or_path) != KERNELBENCH:
        raise UsageError(
            f"--path {path}: {name_or_path} has its own files", hint=f"Did you mean --suite {KERNELBENCH}?"
        )
    suite = _named(str(name_or_path), None if path is None else Path(path))
    _require_distinct(suite)
    if libraries is None and str(name_or_path) in FOLDERS:
        libraries = resources.libraries()
    for wanted in ids:
        if not any(_is_called(task, wanted) for task in suite.tasks):
            close = get_close_matches(wanted, [task.id for task in suite.tasks], n=3, cutoff=0.5)
            hint = f"Did you mean {', '.join(close)}?" if close else _about(suite)
            raise UsageError(f"{suite.name} has no task {wanted!r:.80}", hint=hint)
    kept = [task for task in suite.tasks if not ids or any(_is_called(task, wanted) for wanted in ids)]
    kept = [task for task in kept if (not levels or task.level in levels) and set(tags) <= set(task.tags)]
    if not kept:
        raise UsageError(f"no task of {suite.name} is left of {len(suite.tasks)}", hint=_about(suite))
    known = libraries_of(Path(libraries)) if libraries is not None else {}
    return replace(suite, tasks=tuple(replace(task, libraries=known.get(task.id, ())) for task in kept))


def _named(name: str, checkout: Path | None) -> Suite:
    if name == KERNELBENCH:  # its problems draw with `torch.rand`, hence fp32; they are judged by its own tolerance
        suite = _suite(KERNELBENCH, problems_of_checkout(checkout), tolerance=KERNELBENCH)
        tasks = (replace(task, dtypes=task.dtypes or ("fp32",), tags=(KERNELBENCH,)) for task in suite.tasks)
        return replace(suite, tasks=tuple(tasks))
    if name in FOLDERS:
        root = resources.tasks()
        return _suite(name, (pair for folder in FOLDERS[name] for pair in _files_of(root / folder, root)))
    path = Path(name)
    if path.is_file():
        return _suite(path.stem, [(path.stem, path)])
    if path.is_dir():
        return _suite(path.resolve().name, _files_of(path, path))
    close = get_close_matches(name, SUITE_NAMES, n=1)
    meant = f"Did you mean {close[0]}? " if close else ""
    raise UsageError(
        f"{path}: no suite, folder or file of this name",
        hint=f"{meant}Suites: {', '.join(SUITE_NAMES)}; or a folder of problem files, or one file.",
    )


def problems_of_checkout(checkout: Path | None) -> Ids:
    """Ids and files of KernelBench's levels; `checkout` is the repository's root or the folder that holds `level1`.

    Raises UsageError where there is none.
    """
    if checkout is None:
        raise UsageError("the suite kernelbench needs --path: where its checkout is", hint=GET)
    for root in (checkout / CHECKOUT, checkout):
        files = [path for path in root.glob("level[123]/*.py") if re.fullmatch(r"\d+_.*", path.name)]
        if files:
            return [(f"{path.parent.name}/{path.stem}", path) for path in files]
    raise UsageError(f"{checkout}: no checkout of KernelBench: it has no {CHECKOUT}/level1/1_….py", hint=GET)


def _files_of(folder: Path, root: Path) -> Ids:
    """Every .py file below the folder, by its path below `root`; names that begin with a dot or `_` are left out."""
    files = [path.relative_to(root) for path in folder.rglob("*.py") if path.is_file()]
    shown = [path for path in files if not any(part.startswith((".", "_")) for part in path.parts)]
    if not shown:
        raise UsageError(f"{folder}: the folder holds no .py file", hint="Give a folder of problem files.")
    return [(path.with_suffix("").as_posix(), root / path) for path in shown]


def _suite(name: str, files: Ids, *, tolerance: str = "strict") -> Suite:
    """Results and kernels are found by a task's id: it is UTF-8, else UsageError. Numbers in it are in their order."""
    tasks = []
    for task_id, path in files:
        if encodable(task_id) != task_id:
            raise UsageError(f"{encodable(str(path))}: the file's name is not UTF-8", hint="Rename the file.")
        tasks.append(read_task(path, task_id, tolerance=tolerance))
    return Suite(name=encodable(name), tasks=tuple(sorted(tasks, key=_order)))


def _order(task: Task) -> list[tuple[int, str]]:
    """2 before 10, and each number before any word."""
    parts = filter(None, re.split(r"([0-9]+)", task.id))
    return [(int(part), "") if part.isdigit() else (1 << 62, part) for part in parts]


def _require_distinct(suite: Suite) -> None:
    """Results are found by a task's id, and files by it too: where case does not count, two ids are one."""
    counts = Counter(task.id.casefold() for task in suite.tasks)
    twice = [task for task in suite.tasks if counts[task.id.casefold()] > 1]
    if twice:
        listed = ", ".join(str(task.path) for task in twice[:4])
        raise UsageError(f"{suite.name}: {twice[0].id} names several tasks: {listed}", hint="Rename one of the files.")


def _is_called(task: Task, wanted: str) -> bool:
    last = task.id.rpartition("/")[2]
    number = last.partition("_")[0] if last[:1].isdigit() else last
    return wanted in (task.id, last, number) or fnmatchcase(task.id, wanted)


def _about(suite: Suite) -> str:
    """What there is to choose from."""
    levels = sorted({task.level for task in suite.tasks})
    tags = [tag for tag, _ in Counter(tag for task in suite.tasks for tag in task.tags).most_common(8)]
    first = ", ".join(task.id for task in suite.tasks[:3])
    return f"Levels: {', '.join(map(str, levels))}; tags: {', '.join(tags) or 'none'}; tasks such as {first}."


def tolerance_of(task: Task, name: str = "") -> float | None:
    """rtol and atol for verify, or None for the judge's own (the file's TOLERANCE, else by dtype).

    `name` overrides the task's. Raises UsageError for a tolerance that does not exist.
    """
    chosen = name or task.tolerance
    if chosen not in TOLERANCES:
        raise UsageError(f"--tolerance {chosen}: there is no such tolerance", hint=f"Use {' or '.join(TOLERANCES)}.")
    if chosen == "strict":
        return None
    return KERNELBENCH_HALF if HALVES & set(task.dtypes) else KERNELBENCH_FULL
