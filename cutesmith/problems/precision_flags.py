"""What PyTorch's flags say of float32 convolutions: cuDNN may round their factors to tf32, by default."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch


def convolutions_may_round() -> bool:
    """Whether cuDNN may multiply float32 factors of convolutions in tf32.

    Source: `torch.backends.cudnn.allow_tf32`, or `cudnn.conv.fp32_precision` where that was set apart.
    """
    cudnn: Any = torch.backends.cudnn
    if not cudnn.enabled:
        return False
    try:
        return bool(cudnn.allow_tf32)
    except RuntimeError:  # convolutions and recurrent cells were told different things
        return str(cudnn.conv.fp32_precision) == "tf32"


@contextmanager
def without_tf32() -> Iterator[None]:
    """Within it, PyTorch rounds no factors of float32 products and convolutions on a GPU; undone at exit."""
    with exact_convolutions(), _in_full(torch.backends.cuda.matmul):
        yield


@contextmanager
def exact_convolutions() -> Iterator[None]:
    """Within it, cuDNN rounds no factors of float32 convolutions and recurrent cells; undone at exit."""
    with _in_full(torch.backends.cudnn, "conv"):
        yield


@contextmanager
def _in_full(flags: Any, part: str = "") -> Iterator[None]:
    """Within it, such operations keep all bits of float32. `part`: what the newer names of the flags set apart."""
    with ExitStack() as undone:
        try:
            undone.callback(setattr, flags, "allow_tf32", flags.allow_tf32)
            flags.allow_tf32 = False
        except RuntimeError:  # set apart, by the newer names
            owner = getattr(flags, part, flags)
            undone.callback(setattr, owner, "fp32_precision", owner.fp32_precision)
            owner.fp32_precision = "ieee"
        yield
