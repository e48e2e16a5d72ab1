"""Kernel files with the verdict that each must get, as the comment lines at their top say."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path

from cutesmith import resources
from cutesmith.errors import UsageError
from cutesmith.judge.exploits import EXPLOITS

STATUSES = (
    "passed",
    "wrong_result",
    "usage",
    "does_not_compile",
    "crashed",
    "timed_out",
    "unavailable",
    "rejected",
)
NEEDS = ("compile", "values", "gpu")
COMMANDS = ("verify", "benchmark", "audit")
ALSO_HONEST = "also_honest.txt"
HEADER_LINES = 10


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """One kernel file and what its header says of it.

    `rule`: a row of the table of exploits, empty for a contract error or an honest kernel that resembles none.
    `expect`: one or more statuses ("wrong_result | crashed"). `says`: the rules that the verdict may name, by default
    the row's own; "-" for any, "- | O6" for none or O6. `needs`: the least that shows it, "compile", "values" (emulated
    or real) or "gpu". `command`: what judges it. `timeout`: seconds a call. `options`: further ones of the command.
    `gap`: why the judge does not catch it yet.
    """

    path: Path
    rule: str = ""
    expect: str = "passed"
    says: str = ""
    needs: str = "compile"
    command: str = "verify"
    timeout: str = "60"
    gap: str = ""
    options: str = ""
    sha256: str = ""  # of the file as it was read

    def __post_init__(self) -> None:
        """Raise UsageError for a header that says what nothing understands."""
        unknown = [status for status in self.statuses if status not in STATUSES]
        if unknown or self.needs not in NEEDS or self.command not in COMMANDS or self.rule not in ("", *EXPLOITS):
            raise UsageError(
                f"{self.path}: its header is not understood",
                hint=f"rule: a row of the table of exploits; expect: {', '.join(STATUSES)}; needs: {', '.join(NEEDS)}; "
                f"command: {', '.join(COMMANDS)}",
            )

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    @property
    def statuses(self) -> tuple[str, ...]:
        """The verdicts that are right."""
        return tuple(status.strip() for status in self.expect.split("|"))

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that a verdict against it may name, "" for none; empty when any will do."""
        named = tuple(rule.strip() for rule in (self.says or self.rule or "-").split("|"))
        return () if named == ("-",) else tuple(rule.replace("-", "") for rule in named)

    @property
    def honest(self) -> bool:
        """Whether it must pass."""
        return self.statuses == ("passed",)

    def can_run(self, on: str) -> bool:
        """Times need a GPU; values need one too, or the emulated one."""
        reach = {"compile": ("compile",), "emulator": ("compile", "values"), "gpu": NEEDS}
        return self.needs in reach[on]


def read_specimen(path: Path) -> Specimen:
    """The specimen that a file's `# key: value` lines describe. Raises UsageError."""
    known = {field.name for field in fields(Specimen)} - {"path", "sha256"}
    found: dict[str, str] = {}
    content = path.read_bytes()
    for line in content.decode(errors="replace").splitlines()[:HEADER_LINES]:
        key, colon, value = line.removeprefix("# ").partition(":")
        if not line.startswith("# ") or not colon or key not in known:
            break
        found[key] = value.strip()
    return Specimen(path=path, sha256=hashlib.sha256(content).hexdigest(), **found)


def adversarial_folder() -> Path:
    """`evals/adversarial` of the repository. Raises UsageError where it is not."""
    folder = resources.PACKAGE.parent / "evals" / "adversarial"
    if not folder.is_dir():
        raise UsageError(f"no kernels in {folder}", hint="Run it in the repository, or name a folder with --kernels.")
    return folder


def specimens(folder: Path, prefixes: Iterable[str] = ()) -> list[Specimen]:
    """The folder's kernels, and the honest ones that its `also_honest.txt` names; those that start with a prefix.

    Each line of that file is a path from the folder's second parent and, where it is not "compile", what it needs.
    Raises UsageError for a header that is wrong, and when no name starts so.
    """
    chosen = tuple(prefixes)
    found = [read_specimen(path) for path in sorted(folder.glob("*.py"))]
    listed = folder / ALSO_HONEST
    for line in listed.read_text(encoding="utf-8").splitlines() if listed.is_file() else ():
        if line.strip() and not line.startswith("#"):
            path, _, needs = line.partition(" ")
            specimen = read_specimen(folder.parents[1] / path)
            found.append(replace(specimen, timeout="300", needs=needs.strip() or specimen.needs))
    found = [specimen for specimen in found if not chosen or specimen.name.startswith(chosen)]
    if not found:
        raise UsageError(f"no kernel for {' '.join(chosen) or folder}", hint=f"Names are those of {folder}/*.py.")
    return found
