"""New values for the inputs of timed launches, in place and the same in every process that is told the same numbers.

Between rounds the rows of every float tensor are rolled (rule R3). Before each launch one element of each takes the
value of another one, or about a thousandth of them do, which a sum over all shows: results remembered by a fingerprint
of the contents (rule R2) are wrong there, or are never found.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

Nudge = list[tuple[torch.Tensor, torch.Tensor]]  # (some elements, those whose values they take)
STEPS = range(512, 2048)  # elements from one that changes to the next


def refresh(values: Sequence[Any], shift: int) -> None:
    """New values of the same distribution in place: the rows of every float tensor, rolled by `shift`."""
    for value in _floats(values):
        rows = value.ndim >= 2 and value.shape[0] > 1
        value.copy_(torch.roll(value, shift % max(1, value.shape[0]), 0) if rows else torch.roll(value, shift))


def nudges(copies: Sequence[Sequence[Any]], shift: int, launches: int) -> list[Nudge]:
    """What each of `launches` launches over rotating copies is preceded by; drawn from `shift` and the launch alone."""
    return [nudge(copies[index % len(copies)], shift, index) for index in range(launches)]


def nudge(values: Sequence[Any], shift: int, launch: int) -> Nudge:
    """One element of each float tensor, or one in every step, and as many others of it, as views of the tensor."""
    source = random.Random(f"{shift} {launch}")
    return [_elements(value, source) for value in _floats(values)]


def apply(changes: Nudge) -> None:
    """Overwrite the elements."""
    for target, source in changes:
        target.copy_(source)


def _elements(tensor: torch.Tensor, source: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    step = source.choice(STEPS)
    if source.random() < 0.5 or step >= tensor.numel() or not tensor.is_contiguous():
        return _element(tensor, source), _element(tensor, source)
    begins = source.sample(range(step), 2)
    count = (tensor.numel() - 1 - max(begins)) // step + 1
    ours, theirs = (tensor.as_strided((count,), (step,), tensor.storage_offset() + begin) for begin in begins)
    return ours, theirs


def _element(tensor: torch.Tensor, source: random.Random) -> torch.Tensor:
    place = sum(source.randrange(size) * step for size, step in zip(tensor.shape, tensor.stride()))
    return tensor.as_strided((1,), (1,), tensor.storage_offset() + place)


def _floats(values: Sequence[Any]) -> list[torch.Tensor]:
    """The float tensors; those of 8 bits as their bytes, for which `torch.roll` is not written."""
    found = [value for value in values if isinstance(value, torch.Tensor) and value.is_floating_point()]
    return [value.view(torch.uint8) if value.itemsize == 1 else value for value in found if _writable(value)]


def _writable(tensor: torch.Tensor) -> bool:
    """Whether there is something to change, and no two elements share memory."""
    broadcast = any(step == 0 and size > 1 for size, step in zip(tensor.shape, tensor.stride()))
    return tensor.numel() > 1 and not broadcast
