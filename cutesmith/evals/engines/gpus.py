"""Which GPUs a run may use, as CUDA names them in CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import takewhile

from cutesmith.devices import list_devices, visible_devices
from cutesmith.errors import UnavailableError, UsageError


def choose_gpus(text: str) -> tuple[str, ...]:
    """The devices that `--gpus` names: "all", a number of them, or their indices with a comma ("0,1", "3,").

    Only those that CUDA_VISIBLE_DEVICES leaves. Raises UsageError for what is no such list, UnavailableError for GPUs
    that are not there.
    """
    there = visible_gpus()
    if text == "all":
        return tuple(there)
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    if "," in text and wanted:
        return _named(wanted, there)
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


def _named(wanted: Sequence[str], there: Sequence[str]) -> tuple[str, ...]:
    missing = [name for name in wanted if name not in there]
    if missing:
        raise UnavailableError(f"--gpus: there is no GPU {', '.join(missing)}; there are {', '.join(there) or 'none'}")
    return tuple(dict.fromkeys(wanted))
