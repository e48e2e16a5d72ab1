#!/usr/bin/env python3
"""Walk through the workflows of SKILL.md with an installed copy alone: from a request to a verified kernel.

    python evals/skill/skill_walk.py    # all walks, here: on the emulated GPU where there is no other
    python evals/skill/skill_walk.py --walk elementwise debugging --out walk.json

The copy is what `cutesmith skill install` writes. The environment holds torch, the DSL and what the manifest names, and
nothing else; every command is a script of the copy, run by its relative path, with an empty home. What an agent would
write or change is in the walks below; every exit code, and the words that must be seen, are checked.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from evals.skill.clean_environment import is_installed, make_environment  # noqa: E402
from evals.skill.walks import WALKS, Command, Edit, Walk, Write  # noqa: E402

PACKAGES = ("torch", "nvidia-cutlass-dsl", "apache-tvm-ffi", "llvmlite", "jinja2", "matplotlib")
"""What SKILL.md asks for: the kernels' own needs, the emulated GPU, the generator."""


@dataclass
class Step:
    """A command that was run, what it ended with and what it should have."""

    command: str
    exit_code: int
    expected: tuple[int, ...]
    seconds: float
    missing: list[str]
    tail: str

    @property
    def right(self) -> bool:
        return self.exit_code in self.expected and not self.missing


@dataclass
class Result:
    """A walk's steps so far; it ends with the first that is not as expected."""

    walk: str
    request: str
    seconds: float = 0.0
    steps: list[Step] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return bool(self.steps) and all(step.right for step in self.steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--walk", nargs="+", choices=[w.name for w in WALKS], help="only these")
    parser.add_argument("--out", type=Path, help="write every step as JSON")
    options = parser.parse_args()
    chosen = [walk for walk in WALKS if not options.walk or walk.name in options.walk]
    with tempfile.TemporaryDirectory(prefix="cutesmith-walk-") as scratch:
        skill, python = prepare(Path(scratch))
        results = [take(walk, skill, python, Path(scratch) / walk.name, show=print) for walk in chosen]
    if options.out:
        facts = {"packages": installed(), "python": sys.version.split()[0], "walks": [asdict(r) for r in results]}
        options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    print(f"{sum(r.passed for r in results)} of {len(results)} walks passed")
    return 0 if all(result.passed for result in results) else 1


def prepare(scratch: Path) -> tuple[Path, Path]:
    """Install the skill into a project folder and make the environment; returns the copy and its interpreter."""
    project = scratch / "project"
    project.mkdir(parents=True)
    command = [sys.executable, "-m", "cutesmith", "skill", "install", "--client", "claude", "--project", str(project)]
    root = Path(__file__).resolve().parents[2]
    subprocess.run(command, check=True, cwd=root, stdout=subprocess.DEVNULL)
    return project / ".claude" / "skills" / "cute-dsl-kernels", make_environment(scratch / "environment", installed())


def installed() -> list[str]:
    """Which of PACKAGES there are: a machine with a GPU does without llvmlite."""
    return [name for name in PACKAGES if is_installed(name)]


def take(walk: Walk, skill: Path, python: Path, folder: Path, *, show=lambda line: None) -> Result:
    """Take one walk in a folder of its own."""
    folder.mkdir()
    result, started = Result(walk.name, walk.request), time.monotonic()
    show(f"== {walk.name}: {walk.request}")
    for step in walk.steps:
        if isinstance(step, Write):
            (folder / step.path).write_text(step.text, encoding="utf-8")
        elif isinstance(step, Edit):
            _edit(folder / step.path, step)
        else:
            result.steps.append(_run(step, skill, python, folder))
            show(_line(result.steps[-1]))
            if not result.steps[-1].right:
                break
    result.seconds = round(time.monotonic() - started, 1)
    return result


def _edit(path: Path, step: Edit) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(step.old) >= 1, f"{path.name} has no {step.old!r}"
    path.write_text(text.replace(step.old, step.new), encoding="utf-8")


def _run(step: Command, skill: Path, python: Path, folder: Path) -> Step:
    """Run `scripts/X.py …` from the skill's folder; `{here}` in the words is the walk's."""
    words = [word.replace("{here}", str(folder)) for word in step.words]
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "LANG")}
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    start = time.monotonic()
    done = subprocess.run(
        [str(python), *words],
        cwd=skill,
        env={**kept, "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    output = done.stdout + done.stderr
    missing = [word for word in step.shows if word not in output]
    shown = " ".join(step.words).replace("{here}/", "")
    return Step(shown, done.returncode, step.expected, round(time.monotonic() - start, 1), missing, output[-1500:])


def _line(step: Step) -> str:
    mark = "ok " if step.right else "BAD"
    text = f"  {mark} {step.seconds:6.1f} s  exit {step.exit_code}  {step.command[:150]}"
    return text if step.right else f"{text}\n       expected {step.expected}, missing {step.missing}\n{step.tail}"


if __name__ == "__main__":
    sys.exit(main())
