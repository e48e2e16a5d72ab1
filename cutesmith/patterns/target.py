"""What the generator writes for, and whether this machine can execute it."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata

from cutesmith import __version__
from cutesmith.devices import DEFAULT_ARCH, Device, current_device, parse_arch
from cutesmith.errors import UnavailableError, UsageError

PLACES = ("auto", "gpu", "compile")


@dataclass(frozen=True)
class Target:
    """An architecture such as "sm_90a", the GPU that executes it (None: compile only), and why there is none."""

    arch: str
    device: Device | None = None
    why_not: str = ""

    @property
    def executes(self) -> bool:
        """Whether kernels can be run here."""
        return self.device is not None


def choose_target(arch: str | None, on: str) -> Target:
    """The target for `--arch` and `--on`; UsageError: unknown; UnavailableError: a GPU was asked for in vain."""
    if on not in PLACES:
        raise UsageError(f"--on {on!r}: there is no such place", hint=f"Use one of: {', '.join(PLACES)}")
    device = None if on == "compile" else current_device()
    wanted = parse_arch(arch) if arch else None
    if device is None or device.sm is None:
        reason = "--on compile was asked" if on == "compile" else _no_gpu(device)
        return _without_gpu(str(wanted or DEFAULT_ARCH), on, reason)
    if wanted is None or wanted.runs_on(device.sm):
        return Target(str(wanted or device.sm.default_arch), device)
    return _without_gpu(str(wanted), on, f"the GPU here ({device.name}) does not run {wanted}")


def _no_gpu(device: Device | None) -> str:
    return "this machine has no GPU" if device is None else f"{device.name} is not in the SM table"


def _without_gpu(arch: str, on: str, reason: str) -> Target:
    if on == "gpu":
        raise UnavailableError(f"--on gpu: {reason}", hint="Leave --on out to compile only.")
    return Target(arch, None, f"nothing was executed: {reason}")


def describe_environment(target: Target) -> dict[str, str]:
    """What a result depends on besides the files: versions, GPU, driver."""
    device = target.device
    gpu = {"GPU": device.name, "driver": device.driver} if device else {"GPU": f"none used ({target.why_not})"}
    versions = {name: _version(name) for name in ("torch", "nvidia-cutlass-dsl")}
    system = f"{platform.system()} {platform.machine()}"
    return {"architecture": target.arch, **gpu, "cutesmith": __version__, **versions, **_python(), "system": system}


def _python() -> dict[str, str]:
    return {"Python": platform.python_version()}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"
