#!/usr/bin/env python3
"""The judge on trial: every kernel of evals/adversarial/ must get the verdict that its header names.

python evals/selftest.py                      all that this machine can run
python evals/selftest.py --jobs 8 --out DIR   also matrix.md, matrix.json and one JSON verdict a kernel in DIR
python evals/selftest.py r1 t8                only kernels whose name starts so

The last line is the summary; the exit code is 1 when a verdict differs, 2 when no kernel has such a name.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).resolve().parent / "adversarial"
EXIT_CODES = {"passed": 0, "wrong_result": 1, "usage": 2, "crashed": 5, "timed_out": 6, "rejected": 8}
RULED = ("rejected", "wrong_result")
NAMES = {code: name for name, code in EXIT_CODES.items()}
FOLDERS = re.compile(
    r"(?<![\w.:/])/(?:[^\s'\"/,;:()]+/)+(?=[^\s'\"/,;:()])"
)  # of an absolute path, up to the file name
COMMAND_SECONDS = 600
SAME_RULES = {"T8": ("T8", "T4")}  # work on another stream is impossible by the floor, or late by the parent's clock


@dataclass(frozen=True)
class Specimen:
    """One kernel and what its header says: rule, expected status, "compile" or "gpu", command, seconds a call."""

    path: Path
    rule: str
    expect: str
    needs: str
    command: str = "verify"
    timeout: str = "60"

    @classmethod
    def read(cls, path: Path) -> Specimen:
        """The header's `# key: value` lines."""
        head = [line[2:].split(":", 1) for line in path.read_text().splitlines() if line.startswith("# ")][:6]
        return cls(path=path, **{key.strip(): value.strip() for key, value in head if key in cls.__dataclass_fields__})

    def can_run(self, on: str) -> bool:
        """Times need a GPU; values need one too, or the emulated one."""
        return on == "gpu" or (self.command == "verify" if on == "emulator" else self.needs == "compile")

    @property
    def honest(self) -> bool:
        """Whether it must pass."""
        return self.expect == "passed"


@dataclass(frozen=True)
class Outcome:
    """What the command made of a specimen."""

    specimen: Specimen
    exit_code: int
    rule: str
    summary: str
    seconds: float
    output: str

    @property
    def right(self) -> bool:
        """Whether exit code and, where it was caught by a rule, the rule are the expected ones."""
        wanted = self.specimen.rule
        if self.exit_code != EXIT_CODES[self.specimen.expect]:
            return False
        ruled = self.specimen.expect in RULED and self.specimen.rule not in ("", "H2")
        return not ruled or self.rule in SAME_RULES.get(wanted, (wanted,))

    @property
    def got(self) -> str:
        """The status it got, and the rule that caught it."""
        return f"{NAMES.get(self.exit_code, self.exit_code)} {self.rule}".strip()

    def row(self) -> dict[str, object]:
        """What matrix.json holds of it; the sentence names files without their folders on this machine."""
        return {
            "rule": self.specimen.rule,
            "kernel": self.specimen.path.stem,
            "expected": self.specimen.expect,
            "got": self.got,
            "right": self.right,
            "seconds": round(self.seconds, 1),
            "sentence": FOLDERS.sub("", self.summary).strip(),
        }


def specimens(prefixes: list[str]) -> list[Specimen]:
    """All kernels, or those whose name starts with one of the prefixes."""
    paths = sorted(FOLDER.glob("*.py"))
    return [Specimen.read(p) for p in paths if not prefixes or p.name.startswith(tuple(prefixes))]


def run(specimen: Specimen, on: str) -> Outcome:
    """The command line, as anybody would call it."""
    command = [sys.executable, str(ROOT / "scripts" / f"{specimen.command}_kernel.py"), str(specimen.path), "--json"]
    command += ["--timeout", specimen.timeout]
    if specimen.command == "verify":
        command += ["--on", on]
    else:
        command += ["--quick", "--no-compile-baseline"]
    begin = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired as error:
        sentence = f"the command itself did not end within {COMMAND_SECONDS} s"
        return Outcome(specimen, -1, "", sentence, time.monotonic() - begin, str(error))
    rule, summary = _read(done.stdout, done.stderr)
    return Outcome(specimen, done.returncode, rule, summary, time.monotonic() - begin, done.stdout or done.stderr)


def _read(stdout: str, stderr: str) -> tuple[str, str]:
    try:
        verdict = json.loads(stdout)
    except ValueError:
        return "", (stderr or stdout)[-300:]
    return verdict.get("rule", ""), verdict.get("summary", "")


def matrix(outcomes: list[Outcome]) -> str:
    """A Markdown table, one line a kernel."""
    lines = ["| rule | kernel | expected | got | right | seconds | verdict |", "|---|---|---|---|---|---|---|"]
    for row in (outcome.row() for outcome in outcomes):
        cells = [str(row[key]) for key in ("rule", "kernel", "expected", "got")]
        cells += ["yes" if row["right"] else "NO", f"{row['seconds']:.0f}", _cell(str(row["sentence"]))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(text: str, width: int = 160) -> str:
    """One line of a table: no bars, no line breaks, cut at a word."""
    text = " ".join(text.replace("|", "/").split())
    return text if len(text) <= width else text[:width].rsplit(" ", 1)[0] + " …"


def main(argv: list[str] | None = None) -> int:
    """Run, print the matrix and at last a summary; return 1 when a verdict is not the expected one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="prefixes of kernel names")
    parser.add_argument("--on", choices=("gpu", "emulator", "compile"), help="default: gpu, or emulator without one")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (default: 2)")
    parser.add_argument("--out", type=Path, help="folder for the verdicts and matrix.md")
    options = parser.parse_args(argv)
    on = options.on or ("gpu" if _has_gpu() else "emulator")
    chosen = [specimen for specimen in specimens(options.names) if specimen.can_run(on)]
    if not chosen:
        print(f"no kernel for {' '.join(options.names) or 'this machine'}", file=sys.stderr)
        return 2
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(lambda specimen: run(specimen, on), chosen))
    print(matrix(outcomes))
    if options.out:
        _write(options.out, outcomes)
    wrong = [outcome for outcome in outcomes if not outcome.right]
    print(f"{len(outcomes) - len(wrong)} of {len(outcomes)} as expected, on {on}")
    return 1 if wrong else 0


def _has_gpu() -> bool:
    sys.path.insert(0, str(ROOT))
    from cutesmith.devices import current_device

    return current_device() is not None


def _write(folder: Path, outcomes: list[Outcome]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "matrix.md").write_text(f"{matrix(outcomes)}\n")
    (folder / "matrix.json").write_text(json.dumps([outcome.row() for outcome in outcomes], indent=1) + "\n")
    for outcome in outcomes:
        (folder / f"{outcome.specimen.path.stem}.json").write_text(outcome.output)


if __name__ == "__main__":
    sys.exit(main())
