"""What the generator writes for, and whether this machine can execute it."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass

from cutesmith import __version__
from cutesmith.devices import DEFAULT_ARCH, Device, current_device, parse_arch
from cutesmith.errors import UnavailableError, UsageError
from cutesmith.runtime.tuning_cache import package_version

PLACES = ("auto", "gpu", "emulator", "compile")


@dataclass(frozen=True)
class Target:
    """An architecture such as "sm_90a", the GPU that executes it, and why there is none.

    Without a GPU kernels are executed on the emulated one, or (`emulated` False) only compiled.
    """

    arch: str
    device: Device | None = None
    why_not: str = ""
    emulated: bool = False

    @property
    def executes(self) -> bool:
        """Whether kernels can be run, and timed, on a GPU here."""
        return self.device is not None

    @property
    def place(self) -> str:
        """Where verify runs: "gpu", "emulator" or "compile"."""
        return "gpu" if self.executes else "emulator" if self.emulated else "compile"


def choose_target(arch: str | None, on: str, *, find_device: Callable[[], Device | None] | None = None) -> Target:
    """The target for `--arch` and `--on`; UsageError: unknown; UnavailableError: a GPU was asked for in vain.

    `find_device` finds the GPU that executes, where that is not one of this machine.
    """
    if on not in PLACES:
        raise UsageError(f"--on {on!r}: there is no such place", hint=f"Use one of: {', '.join(PLACES)}")
    device = (find_device or current_device)() if on in ("auto", "gpu") else None
    wanted = parse_arch(arch) if arch else None
    if device is None or device.sm is None:
        missing = "this machine has no GPU" if device is None else f"{device.name} is not in the SM table"
        reason = f"--on {on} was asked" if on in ("compile", "emulator") else missing
        return _without_gpu(str(wanted or DEFAULT_ARCH), on, reason)
    if wanted is None or wanted.runs_on(device.sm):
        return Target(str(wanted or device.sm.default_arch), device)
    return _without_gpu(str(wanted), on, f"the GPU here ({device.name}) does not run {wanted}")


def _without_gpu(arch: str, on: str, reason: str) -> Target:
    if on == "gpu":
        raise UnavailableError(f"--on gpu: {reason}", hint="Leave --on out to use the emulated GPU.")
    if on == "compile":
        return Target(arch, None, f"nothing was executed: {reason}")
    return Target(arch, None, f"nothing was timed: {reason}", emulated=True)


def describe_environment(target: Target) -> dict[str, str]:
    """What a result depends on besides the files: versions, GPU, driver."""
    device = target.device
    gpu = {"GPU": device.name, "driver": device.driver} if device else {"GPU": f"none used ({target.why_not})"}
    versions = {name: package_version(name) for name in ("torch", "nvidia-cutlass-dsl")}
    system = f"{platform.system()} {platform.machine()}"
    ours = {"cutesmith": __version__, **versions, "Python": platform.python_version()}
    return {"architecture": target.arch, **gpu, **ours, "system": system}
