"""Kernels in installed packages: which distributions, their files, and what a module is called in the index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from cutesmith.examples.index.reading import Source, read_source


@dataclass(frozen=True)
class Package:
    """A distribution with kernels worth reading: its name, what ids begin with, its licence and its roots."""

    distribution: str
    prefix: str
    licence: str
    roots: tuple[str, ...]  # folders in site-packages; in ids they are left out


PACKAGES = (
    Package(
        "nvidia-cutlass-operators",
        "operators",
        "BSD-3-Clause",
        (
            "cutlass/operators/providers/cutedsl/gemm/implementations/",
            "cutlass/operators/providers/cutedsl/",
            "cutlass/operators/",
            "cutlass/kernels/",
        ),
    ),
    Package("quack-kernels", "quack", "Apache-2.0", ("quack/",)),
)


def package_of(path: str, known: Sequence[Package] = PACKAGES) -> Package | None:
    """The package that a path (in site-packages) belongs to."""
    return next((p for p in known if any(path.startswith(root) for root in p.roots)), None)


def identifier(path: str, package: Package) -> str:
    """`quack/epilogue/library`, `operators/sm90_static_persistent_impl`."""
    root = next(root for root in package.roots if path.startswith(root))
    return f"{package.prefix}/{PurePosixPath(path.removeprefix(root)).with_suffix('')}".lower()


@cache
def installed(name: str) -> Distribution | None:
    """The distribution, or None where it is not installed."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def version(package: Package) -> str:
    """The installed version, or the empty string."""
    found = installed(package.distribution)
    return found.version if found else ""


def located(path: str, package: Package) -> Path | None:
    """The installed file of a path, or None where the package or the file is not there."""
    found = installed(package.distribution)
    file = Path(str(found.locate_file(path))) if found else None
    return file if file and file.is_file() else None


def undescribed(described: set[str]) -> list[str]:
    """Modules of the installed packages that launch kernels and that no curation entry describes, sorted."""
    return sorted(path for package in PACKAGES for path in _modules(package) - described if _has_kernel(path, package))


def _modules(package: Package) -> set[str]:
    found = installed(package.distribution)
    paths = {file.as_posix() for file in (found.files or [] if found else [])}
    return {path for path in paths if path.endswith(".py") and package_of(path) == package}


def _has_kernel(path: str, package: Package) -> bool:
    file = located(path, package)
    return file is not None and "@cute.kernel" in file.read_text(encoding="utf-8")


def read_module(path: str, package: Package) -> Source | None:
    """The module as a source; None where it is not installed; raises UsageError where it does not parse."""
    file = located(path, package)
    return read_source(file, path) if file else None
