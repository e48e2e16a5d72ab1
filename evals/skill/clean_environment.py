"""A Python environment in which only chosen packages, and what they need, can be imported.

A virtual environment without pip, whose site-packages links to the files of the named distributions and their
dependencies as installed here: as clean as a new machine on which only those were installed, without downloading them.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def make_environment(folder: Path, names: Iterable[str]) -> Path:
    """Make the environment in a new folder; returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for distribution in closure(names):
        for entry in _top_level(distribution):
            source = Path(str(distribution.locate_file(entry)))
            target = site / entry
            if source.exists() and not target.exists():
                target.symlink_to(source)
    return folder / "bin" / "python"


def closure(names: Iterable[str]) -> list[importlib.metadata.Distribution]:
    """The distributions and all that they require, as far as it is installed here, by name."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [(name, frozenset[str]()) for name in names]
    while waiting:
        name, extras = waiting.pop()
        key = canonicalize_name(name)
        new = key not in found
        if new and not is_installed(name):
            continue  # a library that comes in another way, such as CUDA's with the system
        found.setdefault(key, importlib.metadata.distribution(name))
        if new or extras:
            waiting += _required(found[key], extras)
    return [found[key] for key in sorted(found)]


def is_installed(name: str) -> bool:
    """Whether there is such a distribution."""
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _required(
    distribution: importlib.metadata.Distribution, extras: frozenset[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    for text in distribution.requires or ():
        requirement = Requirement(text)
        wanted = ("", *extras)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in wanted):
            yield requirement.name, frozenset(requirement.extras)


def _top_level(distribution: importlib.metadata.Distribution) -> set[str]:
    """The entries of site-packages that a distribution's files lie in; scripts outside of it are left out."""
    parts = (file.parts for file in distribution.files or ())
    return {part[0] for part in parts if part[0] not in ("..", "__pycache__")}
