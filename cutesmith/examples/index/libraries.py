"""Packages and repositories whose kernels the index describes: their licences, and where their modules lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

OPERATORS = (
    "cutlass/operators/providers/cutedsl/gemm/implementations/",
    "cutlass/operators/providers/cutedsl/",
    "cutlass/operators/",
    "cutlass/kernels/",
)


@dataclass(frozen=True)
class Library:
    """Kernels worth reading: a distribution or a repository of GitHub, what ids begin with, its licence and its roots.

    The roots are folders of site-packages or of the repository; in ids they are left out. A file that names a licence
    of its own keeps that.
    """

    name: str
    prefix: str
    licence: str
    roots: tuple[str, ...]


PACKAGES = (
    Library("nvidia-cutlass-operators", "operators", "BSD-3-Clause", OPERATORS),
    Library("quack-kernels", "quack", "Apache-2.0", ("quack/",)),
)
REPOSITORIES = (
    Library("Dao-AILab/flash-attention", "flash_attention", "BSD-3-Clause", ("flash_attn/cute/",)),
    Library("flashinfer-ai/flashinfer", "flashinfer", "Apache-2.0", ("flashinfer/",)),
    Library("inclusionAI/cuLA", "cula", "Apache-2.0", ("cula/ops/", "cula/")),
    Library("linkedin/Liger-Kernel", "liger", "BSD-2-Clause", ("src/liger_kernel/ops/cutedsl/ops/",)),
)


def library_of(path: str, known: Sequence[Library]) -> Library | None:
    """The library that a path belongs to."""
    return next((library for library in known if path.startswith(library.roots)), None)


def repository_in(checkout: Path) -> Library | None:
    """The repository that is checked out there, by its folders."""
    here = (library for library in REPOSITORIES if all((checkout / root).is_dir() for root in library.roots))
    return next(here, None)


def identifier(path: str, library: Library) -> str:
    """`quack/epilogue/library`, `operators/sm90_static_persistent_impl`, `flash_attention/flash_fwd_sm90`."""
    root = next(root for root in library.roots if path.startswith(root))
    return f"{library.prefix}/{PurePosixPath(path.removeprefix(root)).with_suffix('')}".lower()
