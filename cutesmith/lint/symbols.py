"""Every name of the installed DSL: the table of one version comes with this package, that of others is built once.

Building imports the DSL in a child process (5 CPU seconds), and the table is kept in the user's cache folder. Reading
one takes 0.06 s, so that lint neither imports the DSL (1.5 s and more) nor waits for it.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutesmith.checkpoints import alone_in, write_atomically
from cutesmith.errors import CutesmithError, UnavailableError
from cutesmith.resources import cache_folder

DISTRIBUTION = "nvidia-cutlass-dsl"
SCHEMA = 1  # raise it when symbol_walk.py writes something else
BUILD_SECONDS = 180.0


@dataclass(frozen=True)
class Resolution:
    """What a dotted name means: found or not, the part that is missing, and what is known of the thing itself.

    `missing` is the first part that does not exist, `parent` the dotted name before it; `reference` is the table's
    reference of the whole name (`x` when the table knows no more); `deprecations` are texts of the package itself.
    """

    dotted: str
    found: bool
    reference: str = "x"
    parent: str = ""
    missing: str = ""
    needs_import: str = ""
    deprecations: tuple[tuple[str, str], ...] = ()  # (dotted name that is deprecated, text)


@dataclass(frozen=True)
class Environment:
    """The `CUTE_DSL_*` variables that the DSL reads, words of CUTE_DSL_KEEP, deprecated switches and their word."""

    variables: list[str]
    keep: list[str]
    deprecated: dict[str, str]


@dataclass(frozen=True)
class SymbolTable:
    """The walked package: modules, classes, functions, deprecations (see symbol_walk.py for the JSON object)."""

    version: str
    table: dict[str, Any]

    @property
    def roots(self) -> frozenset[str]:
        """Top-level packages that this table can judge."""
        return frozenset(name for name in self.table["modules"] if "." not in name)

    @property
    def environment(self) -> Environment:
        """What the DSL reads from the environment."""
        return Environment(**self.table["environment"])

    def is_module(self, dotted: str) -> bool:
        """Whether `import dotted` finds a module."""
        return dotted in self.table["modules"]

    @functools.cached_property
    def loaded(self) -> frozenset[str]:
        """The submodules that `import cutlass, cutlass.cute` alone makes attributes."""
        return frozenset(self.table["imported_by_default"])

    def resolve(self, dotted: str) -> Resolution:
        """Follow a dotted name from its root module; parts beyond what the table knows are taken as they are."""
        parts = dotted.split(".")
        here, reference = parts[0], f"m:{parts[0]}"
        deprecations: list[tuple[str, str]] = []
        needs_import = ""
        for part in parts[1:]:
            step = self._attribute(reference, part)
            if step is None:
                return Resolution(dotted, False, reference, here, part, needs_import, tuple(deprecations))
            owner, here, reference = reference[2:], f"{here}.{part}", step
            if reference.startswith("m:") and self.is_module(reference[2:]) and reference[2:] not in self.loaded:
                needs_import = needs_import or reference[2:]
            text = self.table["deprecated"].get(f"{owner}.{part}") or self.called_deprecated(reference)
            if text:
                deprecations.append((here, text))
        return Resolution(dotted, True, reference, needs_import=needs_import, deprecations=tuple(deprecations))

    def names(self, dotted: str) -> list[str]:
        """Public names beneath a module or class, for suggestions; empty when unknown."""
        resolution = self.resolve(dotted)
        entry = self._entry(resolution.reference) if resolution.found else None
        if entry is None:
            return []
        return sorted({*entry["names"], *entry.get("submodules", ())} - {""})

    def homes(self, name: str) -> list[str]:
        """Dotted names of public modules that have `name`, the shortest first."""
        return self._homes.get(name, [])

    @functools.cached_property
    def _homes(self) -> dict[str, list[str]]:
        homes: dict[str, list[str]] = {}
        for module, entry in self.table["modules"].items():
            if any(part.startswith("_") for part in module.split(".")) or not self.is_public(module):
                continue
            for name in entry["names"]:
                homes.setdefault(name, []).append(f"{module}.{name}")
        return {name: sorted(found, key=lambda d: (d.count("."), len(d))) for name, found in homes.items()}

    def is_public(self, module: str) -> bool:
        """Whether a module is one that kernels are written against, rather than the package's inner works."""
        inner = "base_dsl cutlass_dsl impl_utils experimental compiler".split()
        return not module.startswith(tuple(f"cutlass.{name}" for name in inner))

    def parameters(self, reference: str) -> list[str] | None:
        """Keyword names that a function or class takes; None when it takes any or nothing is known."""
        table = {"f": "functions", "c": "classes"}.get(reference[:1])
        entry = self.table[table].get(reference[2:]) if table else None
        found: list[str] | None = entry["parameters"] if entry else None
        return found

    def deprecated_keywords(self, reference: str) -> dict[str, str]:
        """Keywords of a function or class that the package warns about when they are passed, with its text."""
        owners = {reference[2:], f"{reference[2:]}.__init__"}
        calls = [call for call in self.table["deprecated_calls"] if call["owner"] in owners]
        return {keyword: call["text"] for call in calls for keyword in call["keywords"]}

    def called_deprecated(self, reference: str) -> str:
        """The text that a function or class warns with whenever it is called; empty when it does not."""
        if reference[:1] not in ("f", "c"):
            return ""
        return self._deprecated_owners.get(reference[2:], "")

    @functools.cached_property
    def _deprecated_owners(self) -> dict[str, str]:
        calls = [call for call in self.table["deprecated_calls"] if call["whole"]]
        return {call["owner"].removesuffix(".__init__"): call["text"] for call in calls}

    def instance_names(self, *classes: str) -> frozenset[str] | None:
        """Attributes that instances of these classes or of any subclass have; None when one takes any attribute."""
        wanted = set(classes)
        entries = [e for key, e in self.table["classes"].items() if key in wanted or wanted & set(e["bases"])]
        if not entries or any(entry["open"] for entry in entries):
            return None
        return frozenset(name for entry in entries for name in (*entry["names"], *entry["instance"]))

    def _attribute(self, reference: str, name: str) -> str | None:
        entry = self._entry(reference)
        if entry is None:
            return "x"
        if name in entry["names"]:
            return str(entry["names"][name])
        if name in entry.get("submodules", ()):
            return f"m:{reference[2:]}.{name}"
        return "x" if entry.get("open") or (name.startswith("__") and name.endswith("__")) else None

    def _entry(self, reference: str) -> dict[str, Any] | None:
        table = {"m": "modules", "c": "classes"}.get(reference[:1])
        entry: dict[str, Any] | None = self.table[table].get(reference[2:]) if table else None
        return entry


@functools.cache
def load_symbols() -> SymbolTable:
    """The table of the installed DSL: carried by this package, from the cache, or built now.

    Raises UnavailableError when the DSL is not installed, CutesmithError when its walk fails.
    """
    version, stamp = _installed()
    if (carried := carried_table(version)).exists():
        return SymbolTable(version, json.loads(gzip.decompress(carried.read_bytes())))
    file = cache_folder() / f"symbols-{version}-{stamp}.json"
    if (table := _read_table(file)) is None:
        with alone_in(file.parent):
            table = _read_table(file) or _build_table(file)
    return SymbolTable(version, table)


def carried_table(version: str) -> Path:
    """Where this package keeps the table of a version of the DSL, if it does; symbol_walk.py writes it."""
    return Path(__file__).with_name(f"symbols-{version}.json.gz")


def _installed() -> tuple[str, str]:
    """Version of the installed DSL, and a stamp that changes with the installation, the interpreter and our schema."""
    try:
        version = importlib.metadata.version(DISTRIBUTION)
        spec = importlib.util.find_spec("cutlass")
    except (importlib.metadata.PackageNotFoundError, ImportError, ValueError):
        version, spec = "", None
    if not version or spec is None or not spec.origin:
        raise UnavailableError(f"{DISTRIBUTION} is not installed.", hint=f"pip install '{DISTRIBUTION}>=4.8'")
    walker = Path(__file__).with_name("symbol_walk.py")
    facts = (SCHEMA, spec.origin, Path(spec.origin).stat().st_mtime_ns, sys.version, walker.stat().st_mtime_ns)
    return version, hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _read_table(file: Path) -> dict[str, Any] | None:
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return table if isinstance(table, dict) and "modules" in table else None


def _build_table(file: Path) -> dict[str, Any]:
    """Walk the DSL in a child process and keep the result; a cache folder that cannot be written is not an error."""
    with tempfile.TemporaryDirectory(prefix="cutesmith-") as scratch:
        target = Path(scratch) / "symbols.json"
        _walk_in_child(target)
        table = _read_table(target)
        if table is None:
            raise CutesmithError("The table of the DSL's names came back empty.", hint="Run lint again.")
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, target.read_bytes())
    return table


def _walk_in_child(target: Path) -> None:
    code = (
        "import json,sys; sys.path[:]=json.loads(sys.argv[1]); "
        "from cutesmith.lint.symbol_walk import main; main(sys.argv[2])"
    )
    command = [sys.executable, "-c", code, json.dumps([p for p in sys.path if p]), str(target)]
    environment = {**os.environ, "CUTE_DSL_ARCH": os.environ.get("CUTE_DSL_ARCH", "sm_90a")}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CutesmithError(f"Walking the DSL's names took over {BUILD_SECONDS:.0f} s.") from error
    if done.returncode != 0:
        tail = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise CutesmithError(f"Walking the DSL's names failed: {tail[0]}", hint="Does `import cutlass.cute` work here?")
