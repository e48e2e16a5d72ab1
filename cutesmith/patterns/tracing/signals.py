"""Decompositions of the windows and frequencies that signal processing makes of a length."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch


def _angles(length: int, periodic: bool, named: dict[str, Any]) -> torch.Tensor:
    """From 0 to 2π over a window, or to one place beyond it where it is periodic; in float64."""
    steps = max(1, length if periodic else length - 1)
    return torch.arange(length, device=named.get("device")).double() * (2 * math.pi / steps)


def _typed(window: torch.Tensor, length: int, named: dict[str, Any]) -> torch.Tensor:
    """In the window's type; a window of one element is 1."""
    return (torch.ones_like(window) if length == 1 else window).to(named.get("dtype") or torch.get_default_dtype())


def _hamming(length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **named: Any) -> torch.Tensor:
    return _typed(alpha - beta * _angles(length, periodic, named).cos(), length, named)


def _blackman(length: int, periodic: bool = True, **named: Any) -> torch.Tensor:
    angles = _angles(length, periodic, named)
    return _typed(0.42 - 0.5 * angles.cos() + 0.08 * (2 * angles).cos(), length, named)


def _bartlett(length: int, periodic: bool = True, **named: Any) -> torch.Tensor:
    return _typed(1 - (_angles(length, periodic, named) / math.pi - 1).abs(), length, named)


def _frequencies(length: int, spacing: float = 1.0, **named: Any) -> torch.Tensor:
    """Those of a Fourier transform in its order: from 0 up, then the negative ones."""
    place = torch.arange(length, device=named.get("device"))
    wave = torch.where(place < (length + 1) // 2, place, place - length)
    return (wave * (1.0 / (length * spacing))).to(named.get("dtype") or torch.get_default_dtype())


aten = torch.ops.aten
DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(
        (
            aten.hamming_window.default,
            aten.hamming_window.periodic,
            aten.hamming_window.periodic_alpha,
            aten.hamming_window.periodic_alpha_beta,
        ),
        _hamming,
    ),
    **dict.fromkeys((aten.blackman_window.default, aten.blackman_window.periodic), _blackman),
    **dict.fromkeys((aten.bartlett_window.default, aten.bartlett_window.periodic), _bartlett),
    aten.fft_fftfreq.default: _frequencies,
}
