"""Which GPUs a run may use, and whether this process's GPU still computes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import takewhile

from cutesmith.devices import current_device, list_devices, visible_devices
from cutesmith.errors import CandidateError, UnavailableError, UsageError
from cutesmith.sandbox.messages import HandlerMaker, Request
from cutesmith.sandbox.worker import Limits, run_isolated
from cutesmith.verdicts import Mechanism

PROBE_SECONDS = 180.0
FREE_SHARE = 0.75  # of the memory: contexts that wait for the next kernel have 0.6 GiB each


def choose_gpus(text: str) -> tuple[str, ...]:
    """The devices that `--gpus` names: "all", a number of them, or their indices with a comma ("0,1", "3,").

    Only those that CUDA_VISIBLE_DEVICES leaves. Raises UsageError for what is not such a list, UnavailableError for
    GPUs that are not there.
    """
    there = visible_gpus()
    if text == "all":
        return tuple(there)
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    if "," in text and wanted:
        if missing := [name for name in wanted if name not in there]:
            known = ", ".join(there) or "none"
            raise UnavailableError(f"--gpus: there is no GPU {', '.join(missing)}; there are {known}")
        return tuple(dict.fromkeys(wanted))
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--gpus {text}: neither all, nor a number of GPUs, nor indices such as 0,1")
    if int(text) > len(there):
        raise UnavailableError(f"--gpus {text}: this machine has {len(there)}")
    return tuple(there[: int(text)])


def visible_gpus() -> list[str]:
    """Every GPU that this process may use, by the names of CUDA_VISIBLE_DEVICES where it is set: parts of a GPU too."""
    devices, visible = list_devices(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [str(device.index) for device in devices]
    names = (name.strip() for name in visible.split(","))
    return list(takewhile(lambda name: visible_devices(devices, name), names))


@dataclass(frozen=True)
class Probed:
    """Why the GPU can judge nothing at the moment (`lost`), and what others hold of its memory (`taken`); else ""."""

    lost: str = ""
    taken: str = ""


@dataclass(frozen=True)
class Memory:
    """Bytes of the GPU's memory."""

    free: int
    total: int


@dataclass(frozen=True)
class Compute(Request[Memory]):
    """One small computation; the reply says how much memory there is."""


class Prober:
    """Answers `Compute`."""

    def handle(self, _request: Compute) -> Memory:
        """Compute."""
        import torch

        torch.ones(1024, device="cuda").sum().item()
        return Memory(*torch.cuda.mem_get_info())


def prober() -> HandlerMaker:
    """What the probing worker runs."""
    return Prober


def probe() -> Probed:
    """How this process's GPU is, asked in a process of its own: a broken context must not be ours."""
    if current_device() is None:
        return Probed(lost="nvidia-smi lists no GPU any more")
    limits = Limits(call_seconds=PROBE_SECONDS)
    try:
        reply = run_isolated(prober, Compute(), limits=limits, gpu=True)
    except CandidateError as error:
        if error.mechanism is Mechanism.GPU_MEMORY:
            return Probed(taken=error.message)
        return Probed(lost=f"the GPU does not answer: {error.message}")
    return Probed(taken=taken_of(reply.free, reply.total))


def taken_of(free: int, total: int) -> str:
    """What is said where much of the memory (bytes) is taken while this process judges nothing; else ""."""
    if free >= FREE_SHARE * total:
        return ""
    return f"{(total - free) / 2**30:.1f} of its {total / 2**30:.1f} GiB of memory are taken"
