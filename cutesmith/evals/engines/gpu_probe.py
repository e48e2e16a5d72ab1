"""Whether this process's GPU still computes, asked in a process of its own: a broken context must not be ours."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.devices import current_device, lacked_room
from cutesmith.errors import CandidateError
from cutesmith.sandbox.messages import HandlerMaker, Request
from cutesmith.sandbox.worker import Limits, run_isolated

PROBE_SECONDS = 180.0
FREE_SHARE = 0.75  # of the memory: contexts that wait for the next kernel have 0.6 GiB each


@dataclass(frozen=True)
class Probed:
    """Why the GPU can judge nobody at the moment (`lost`), and what others hold of its memory (`taken`); else ""."""

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
    """How this process's GPU is."""
    if current_device() is None:
        return Probed(lost="nvidia-smi lists no GPU any more")
    limits = Limits(wall_seconds=PROBE_SECONDS)
    try:
        reply = run_isolated(prober, Compute(), limits=limits, gpu=True)
    except CandidateError as error:
        if lacked_room(error.message):
            return Probed(taken=error.message)
        return Probed(lost=f"the GPU does not answer: {error.message}")
    return Probed(taken=taken_of(reply.free, reply.total))


def taken_of(free: int, total: int) -> str:
    """What is said where much of the memory (bytes) is taken while this process judges nobody; else nothing."""
    if free >= FREE_SHARE * total:
        return ""
    return f"{(total - free) / 2**30:.1f} of its {total / 2**30:.1f} GiB of memory are taken"
