"""`cutesmith doctor`: what this machine has, what it lacks, and the line that brings it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cutesmith.commands._run import command, report, verb_parser
from cutesmith.compiling.sass import HOW_TO_GET_IT, disassembler
from cutesmith.devices import SM_VERSIONS, Device, list_devices, sm_of_name
from cutesmith.errors import UnavailableError
from cutesmith.references.sections import written_for
from cutesmith.verbs.record_verbs import DOCTOR
from cutesmith.verdicts import ExitCode, Verdict

MIN_DRIVER = (575, 51, 3)
MIN_DSL = (4, 8)
MIN_TORCH = (2, 9)
PYTHONS = ((3, 10), (3, 13))
FOR_THE_EMULATOR = {"llvmlite": (0, 50), "numpy": (2, 0)}

DESCRIPTION = """\
Say what this machine has for writing, checking and timing CuTe DSL kernels.

Each finding is ok, warn (works, but something is out of reach) or missing (needed for every stage), with the line that
repairs it. The exit code is 0 unless something is missing: without a GPU the emulated one serves all but benchmark."""

EXAMPLES = (
    "cutesmith doctor",
    "cutesmith doctor --table       the SM versions and their limits",
    "cutesmith doctor --json",
)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One finding: its name, "ok", "warn" or "missing", what was found, and the line that repairs it."""

    name: str
    state: str
    found: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class DoctorVerdict(Verdict):
    """Every finding, and the SM table when it was asked for."""

    stage: ClassVar[str] = "doctor"

    checks: tuple[Check, ...] = ()
    table: tuple[dict[str, object], ...] = ()


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    options = verb_parser(DOCTOR, DESCRIPTION, examples=EXAMPLES).parse_args(argv)
    verdict = examine(with_table=options.table)
    return report(verdict, as_json=options.json, lines=_lines(verdict))


_LIMITS = (
    "family smem_per_block smem_per_sm registers_per_sm threads_per_sm blocks_per_sm max_cluster "
    "max_cluster_nonportable tma tensor_cores products"
).split()


def examine(*, with_table: bool = False) -> DoctorVerdict:
    """Look at this machine; nothing is imported that could fail or take seconds, no key is read out."""
    devices = list_devices()
    emulator = [_package(name, least, needed=False, install=name) for name, least in FOR_THE_EMULATOR.items()]
    checks = (
        _python(),
        _package("nvidia-cutlass-dsl", MIN_DSL, needed=True, install="nvidia-cutlass-dsl"),
        _references(),
        _package("torch", MIN_TORCH, needed=True, install="torch"),
        _package("apache-tvm-ffi", (0, 1, 11), needed=False, install="apache-tvm-ffi"),
        *emulator,
        _gpu(devices),
        _driver(devices),
        _torch_build(devices),
        _nvdisasm(),
        _program(
            "compute-sanitizer", "verify --sanitize", "install the CUDA toolkit (cuda-sanitizer) and put it on PATH"
        ),
        _program("ncu", "profiles", "install Nsight Compute and put `ncu` on PATH"),
        _key(),
    )
    missing = [check.name for check in checks if check.state == "missing"]
    return DoctorVerdict(
        exit_code=ExitCode.UNAVAILABLE if missing else ExitCode.PASSED,
        summary=f"missing: {', '.join(missing)}" if missing else _abilities(devices, emulator),
        checks=checks,
        table=tuple(
            {"sm": sm.number, "arch": sm.default_arch, **{name: getattr(sm, name) for name in _LIMITS}}
            for sm in SM_VERSIONS.values()
            if with_table
        ),
    )


def _abilities(devices: Sequence[Device], emulator: Sequence[Check]) -> str:
    if any(device.sm for device in devices):
        return "everything runs here: lint, compile, verify, benchmark"
    lacking = [check.name for check in emulator if check.state != "ok"]
    if lacking:
        return f"no GPU that cutesmith knows, and no emulated one without {' and '.join(lacking)}: lint and compile run"
    return "no GPU that cutesmith knows: verify and generate use the emulated one, benchmark cannot run"


def _python() -> Check:
    version = sys.version_info[:2]
    found = f"{platform.python_version()} ({sys.executable})"
    if PYTHONS[0] <= version <= PYTHONS[1]:
        return Check(name="python", state="ok", found=found)
    span = " to ".join(".".join(map(str, bound)) for bound in PYTHONS)
    return Check(name="python", state="missing", found=found, fix=f"use Python {span}")


def _package(name: str, least: tuple[int, ...], *, needed: bool, install: str) -> Check:
    wanted = ".".join(map(str, least))
    fix = f'pip install "{install}>={wanted}"'
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name=name, state="missing" if needed else "warn", found="not installed", fix=fix)
    if parse_version(found) < least:
        return Check(name=name, state="missing" if needed else "warn", found=f"{found} is older than {wanted}", fix=fix)
    return Check(name=name, state="ok", found=found)


def _references() -> Check:
    """Whether the references were written for the DSL that is installed."""
    try:
        stamp, found = written_for(), importlib.metadata.version("nvidia-cutlass-dsl")
    except (UnavailableError, importlib.metadata.PackageNotFoundError) as error:
        return Check(name="references", state="warn", found=str(error).splitlines()[0], fix="install what is missing")
    if stamp == found:
        return Check(name="references", state="ok", found=f"written for nvidia-cutlass-dsl {stamp}")
    fix = "python scripts/build_api_reference.py --check says how names differ; without --check it writes the API pages"
    return Check(name="references", state="warn", found=f"written for {stamp or 'no version'}, not {found}", fix=fix)


def _gpu(devices: Sequence[Device]) -> Check:
    if not devices:
        fix = "use a machine with an NVIDIA GPU (sm_80 or later) for verify and benchmark"
        return Check(name="gpu", state="warn", found="none", fix=fix)
    described = []
    for device in devices:
        number = 10 * device.capability[0] + device.capability[1]
        named = sm_of_name(device.name)
        odd = f", though its name says SM{named.number}" if named and named.number != number else ""
        arch = f" (compile for {device.sm.default_arch})" if device.sm else ""
        memory = f"{device.memory_bytes / 2**30:.0f} GiB"
        described.append(f"{device.index}: {device.name} → SM{number}{arch}{odd}, {memory}")
    unknown = [device.name for device in devices if device.sm is None]
    fix = f"not in the SM table: {', '.join(unknown)}" if unknown else ""
    return Check(name="gpu", state="warn" if unknown else "ok", found="; ".join(described), fix=fix)


def _driver(devices: Sequence[Device]) -> Check:
    wanted = "575.51.03"
    if not devices:
        return Check(
            name="driver", state="warn", found="none", fix=f"needed with a GPU: NVIDIA driver {wanted} or later"
        )
    found = devices[0].driver
    old = parse_version(found) < MIN_DRIVER
    fix = f"update the NVIDIA driver to {wanted} or later (CUDA 12.9)" if old else ""
    return Check(name="driver", state="warn" if old else "ok", found=found, fix=fix)


def _torch_build(devices: Sequence[Device]) -> Check:
    """Whether torch was built with CUDA, read from its version file: importing torch takes seconds."""
    try:
        text = importlib.metadata.distribution("torch").read_text("../torch/version.py") or ""
    except importlib.metadata.PackageNotFoundError:
        return Check(name="torch build", state="warn", found="no torch", fix="pip install torch")
    match = re.search(r"^cuda[^=\n]*=\s*'([^']+)'", text, re.M)
    if match:
        return Check(name="torch build", state="ok", found=f"CUDA {match[1]}")
    fix = "pip install torch with CUDA (https://pytorch.org/get-started)" if devices else ""
    return Check(name="torch build", state="warn" if devices else "ok", found="CPU only", fix=fix)


def _nvdisasm() -> Check:
    found = disassembler()
    if found:
        return Check(name="nvdisasm", state="ok", found=_version_of(found) or found)
    return Check(name="nvdisasm", state="warn", found="not found", fix=f"for SASS: {HOW_TO_GET_IT}")


def _program(name: str, purpose: str, fix: str) -> Check:
    roots = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    places = [Path(root) / "bin" / name for root in roots if root]
    path = shutil.which(name) or next((str(place) for place in places if os.access(place, os.X_OK)), "")
    if path:
        return Check(name=name, state="ok", found=_version_of(path) or path)
    return Check(name=name, state="warn", found="not found", fix=f"for {purpose}: {fix}")


def _version_of(program: str) -> str:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r"\bV?(\d+\.\d+(?:\.\d+)*)", done.stdout)
    return f"{match[1]} ({program})" if match else ""


def _key() -> Check:
    if os.environ.get("ANTHROPIC_API_KEY"):
        return Check(name="ANTHROPIC_API_KEY", state="ok", found="set (its value is never shown)")
    fix = "only for model-written kernels: export ANTHROPIC_API_KEY=…"
    return Check(name="ANTHROPIC_API_KEY", state="warn", found="not set", fix=fix)


def parse_version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: "2.13.0+cpu" → (2, 13, 0), "575.51.03" → (575, 51, 3)."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


_MARKS = {"ok": "ok     ", "warn": "warn   ", "missing": "MISSING"}


def _lines(verdict: DoctorVerdict) -> Iterator[str]:
    width = max(len(check.name) for check in verdict.checks)
    for check in verdict.checks:
        yield f"{_MARKS[check.state]}  {check.name:{width}}  {check.found}"
        if check.fix:
            yield f"{'':{width + 9}}  → {check.fix}"
    if verdict.table:
        yield from _table_lines()
    yield verdict.summary


def _table_lines() -> Iterator[str]:
    yield ""
    titles = ("arch", "smem/block", "smem/SM", "registers", "threads", "blocks", "cluster", "TMA")
    yield "  ".join(f"{title:>10}" for title in titles) + "  tensor cores · products"
    for sm in SM_VERSIONS.values():
        cluster, tma = f"{sm.max_cluster}/{sm.max_cluster_nonportable}", "yes" if sm.tma else "no"
        sizes = (sm.default_arch, sm.smem_per_block, sm.smem_per_sm, sm.registers_per_sm, sm.threads_per_sm)
        cells = "  ".join(f"{cell!s:>10}" for cell in (*sizes, sm.blocks_per_sm, cluster, tma))
        yield f"{cells}  {', '.join(sm.tensor_cores)} · {', '.join(sm.products)}"
    yield "cluster: portable/non-portable blocks. SM120 is not SM100: 99 KB a block, no tcgen05, no tensor memory."
    yield ""
