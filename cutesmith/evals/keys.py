"""What an outcome depends on, as a hash: equal keys need no second run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache

from cutesmith import __version__, resources
from cutesmith.devices import current_device
from cutesmith.evals.records import Machine, Record
from cutesmith.evals.settings import JudgeSettings, MakerSettings
from cutesmith.runtime.tuning_cache import package_version

JUDGE_ROOMS = "audit compiling emulator judge lint problems profiling recording sandbox timing devices.py".split()


def sha256(data: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(data).hexdigest()


@lru_cache(maxsize=1)
def judge_hash() -> str:
    """Of the judge's own source: other code may judge otherwise."""
    digest = hashlib.sha256()
    for place in (resources.PACKAGE / room for room in JUDGE_ROOMS):
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(f"{path.relative_to(resources.PACKAGE)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def this_machine(on: str) -> Machine:
    """Versions here, and the GPU where kernels are judged on one."""
    device = current_device() if on == "gpu" else None
    return Machine(
        device=device.name if device else "",
        driver=device.driver if device else "",
        dsl=package_version("nvidia-cutlass-dsl"),
        torch=package_version("torch"),
        cutesmith=__version__,
    )


def judged_key(
    machine: Machine, judge: JudgeSettings, task: bytes, kernel: bytes, libraries: Sequence[Record] = ()
) -> str:
    """Of one kernel judged for one task beside these baselines, by settings that hold the task's tolerance."""
    about = {
        "machine": machine.model_dump(),
        "settings": asdict(judge),
        "judge": judge_hash(),
        "task": sha256(task),
        "kernel": sha256(kernel),
        "libraries": [library.plain() for library in libraries],
    }
    return sha256(json.dumps(about, sort_keys=True).encode())


def failure_key(task: str, source: str, sample: int, maker: MakerSettings) -> str:
    """Of an attempt that never came to a kernel."""
    about = {"task": task, "source": source, "sample": sample, "maker": asdict(maker)}
    return sha256(json.dumps(about, sort_keys=True).encode())
