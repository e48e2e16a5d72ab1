"""The verdict of the last `check` of a file, kept beside it: every detail, and what the next one need not do again."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import sys
from dataclasses import replace
from pathlib import Path

import cutesmith
from cutesmith.checkpoints import write_atomically
from cutesmith.sandbox.messages import MalformedError, decode
from cutesmith.verdicts import CheckVerdict, CompileVerdict

FOLDER = Path(".cutesmith") / "checks"
DSL = "nvidia-cutlass-dsl"


def judged(path: Path, problem: str | None, arch: str) -> str:
    """What a compilation depends on, as one hash: both files, the architecture, the DSL and this package."""
    texts = [file.read_bytes() for file in (path, *([Path(problem)] if problem else [])) if file.is_file()]
    newest = max(file.stat().st_mtime_ns for file in Path(cutesmith.__file__).parent.rglob("*.py"))
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        texts.append(f"{DSL} {importlib.metadata.version(DSL)}".encode())
    texts.append(f"{arch} {sys.version} {cutesmith.__version__} {newest}".encode())
    return hashlib.sha256(b"\0".join(hashlib.sha256(text).digest() for text in texts)).hexdigest()


def keep(verdict: CheckVerdict) -> CheckVerdict:
    """Write the verdict beside the file that it is about; the verdict that says where, or as it is with a warning."""
    path = Path(verdict.path)
    place = path.parent / FOLDER / f"{path.name}.json"
    kept = replace(verdict, saved=str(place))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, kept.to_json(indent=1).encode())
    except OSError as error:
        print(f"the details were not saved in {place}: {error.strerror or error}", file=sys.stderr)
        return verdict
    return kept


def compiled_before(path: Path, key: str) -> CompileVerdict | None:
    """The compile stage of the last check, where that passed and was of the very same; else None."""
    try:
        last = json.loads((path.parent / FOLDER / f"{path.name}.json").read_bytes())
        (stage,) = [stage for stage in last["stages"] if stage["stage"] == "compile"]
        named = {name: value for name, value in stage.items() if name not in ("stage", "status")}
        compiled: CompileVerdict = decode(named, CompileVerdict)
        return compiled if last["judged"] == key and compiled.passed else None
    except (OSError, ValueError, LookupError, TypeError, MalformedError):
        return None  # there is none, or it is of another version
